/** The models that there are; asked once, since a server's models change when it is started anew. */

import type { Model } from "@antiphon/client";
import { useEffect, useState } from "react";
import { noteError, server } from "../server";

let asked: Promise<readonly Model[]> | null = null;

function models(): Promise<readonly Model[]> {
  asked ??= server.models.list().then(
    ({ data }) => data,
    (error: unknown) => {
      asked = null;
      noteError(error);
      return [];
    },
  );
  return asked;
}

export function useModels(): readonly Model[] {
  const [known, setKnown] = useState<readonly Model[]>([]);
  useEffect(() => {
    let left = false;
    void models().then((found) => {
      if (!left) setKnown(found);
    });
    return () => {
      left = true;
    };
  }, []);
  return known;
}
