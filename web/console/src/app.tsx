/** The frame around every page. */

import { useState } from "react";
import { type Place, usePlace } from "./address";
import { BeginningPage } from "./pages/beginning";
import { ConversationPage } from "./pages/conversation";
import { Help } from "./pages/help";
import { KeyDoor } from "./pages/door";
import { KeysPage } from "./pages/keys";
import { Palette } from "./pages/palette";
import { OperationsPage } from "./pages/operations";
import { DrawerContext, Sidebar, useDrawer } from "./pages/sidebar";
import { useRefused } from "./server";
import { useShortcuts } from "./shortcuts";
import { useWords } from "./words";

export function App() {
  const words = useWords();
  const place = usePlace();
  const drawer = useDrawer();
  const refused = useRefused();
  const [helping, setHelping] = useState(false);
  const [finding, setFinding] = useState(false);
  useShortcuts({ help: () => setHelping(true), palette: () => setFinding(true) });
  if (refused) return <KeyDoor />;
  return (
    <DrawerContext value={drawer}>
      <a className="skip" href="#main">
        {words.skip}
      </a>
      <div className="frame">
        <Sidebar place={place} />
        {drawer.open && <div className="veil" onClick={() => drawer.set(false)} />}
        <Page place={place} />
      </div>
      {finding && <Palette onHelp={() => setHelping(true)} onClose={() => setFinding(false)} />}
      {helping && <Help onClose={() => setHelping(false)} />}
    </DrawerContext>
  );
}

function Page({ place }: { readonly place: Place }) {
  switch (place.page) {
    case "new":
      return <BeginningPage />;
    case "conversation":
      return <ConversationPage key={place.id} id={place.id} />;
    case "operations":
      return <OperationsPage />;
    case "keys":
      return <KeysPage />;
  }
}
