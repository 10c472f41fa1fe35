/** Prometheus text as figures. Pure; as much of the format as our own server writes. */

export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export type Metrics = ReadonlyMap<string, readonly Sample[]>;

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

export function metricsOf(text: string): Metrics {
  const metrics = new Map<string, Sample[]>();
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (found === null) continue;
    const [, name = "", labels = "", value = ""] = found;
    const sample = {
      labels: Object.fromEntries([...labels.matchAll(LABEL)].map(([, label = "", said = ""]) => [label, said])),
      value: Number(value),
    };
    const known = metrics.get(name);
    if (known === undefined) metrics.set(name, [sample]);
    else known.push(sample);
  }
  return metrics;
}

export function sumOf(metrics: Metrics, name: string): number {
  return (metrics.get(name) ?? []).reduce((sum, sample) => sum + sample.value, 0);
}

/** Return the sums of a metric by the values of one label. */
export function sumBy(metrics: Metrics, name: string, label: string): ReadonlyMap<string, number> {
  const sums = new Map<string, number>();
  for (const { labels, value } of metrics.get(name) ?? []) {
    const of = labels[label] ?? "";
    if (value !== 0) sums.set(of, (sums.get(of) ?? 0) + value);
  }
  return sums;
}
