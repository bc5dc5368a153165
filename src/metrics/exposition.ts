import type { Labels, MetricFamily } from './series.ts';
import { samplesOf } from './series.ts';

/** Writes metrics in the text format of Prometheus, version 0.0.4. */
export function expose(families: readonly MetricFamily[]): string {
  const lines: string[] = [];
  for (const family of families) {
    lines.push(`# HELP ${family.name} ${escapeText(family.help)}`, `# TYPE ${family.name} ${family.type}`);
    for (const { metricName, labels, value } of samplesOf(family)) {
      lines.push(`${metricName}${labelsText(labels)} ${valueText(value)}`);
    }
  }
  return `${lines.join('\n')}\n`;
}

function labelsText(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escapeText(value).replaceAll('"', '\\"')}"`);
  return pairs.length > 0 ? `{${pairs.join(',')}}` : '';
}

function escapeText(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
}

function valueText(value: number): string {
  if (Number.isFinite(value)) return String(value);
  return Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf';
}
