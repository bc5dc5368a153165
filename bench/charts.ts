import type { Measurement } from './report.ts';

/** A chart of the figures of one suite. */
interface ChartSpec {
  suite: string;
  title: string;
  /** Which figures it shows: the group `label` names the bar, `series` its colour. */
  figures: RegExp;
  /** What the best figure is: the longest bars come first, or the shortest; without it the order of the results. */
  best?: 'highest' | 'lowest';
}

const specs: readonly ChartSpec[] = [
  {
    suite: 'emit',
    title: 'A transaction with one order and its event, median, one client',
    figures: /^(?<label>.+), one client on loopback, (?<series>p50)$/,
    best: 'lowest',
  },
  {
    suite: 'latency',
    title: 'From the answer to COMMIT to the first line of the handler',
    figures: /^(?<label>[^,]+), (?<series>p50|p99)$/,
  },
  {
    suite: 'scale',
    title: 'Claiming 2,000 events beside a long history',
    figures: /^claim of 2,000 beside (?<label>.+)$/,
  },
  {
    suite: 'dashboard',
    title: 'Pages of the dashboard beside a long history',
    figures: /^(?<label>.+) beside (?<series>[\d,]+ delivered events)$/,
  },
  {
    suite: 'brokers',
    title: 'Into brokers: the relay, and the same client alone',
    figures: /^(?<label>\w+) (?<series>client from memory|relay)$/,
  },
  {
    suite: 'webhooks',
    title: 'Webhooks to customers that answer, while others hang',
    figures: /^(?<label>.+), (?<series>p50|p99) of the others$/,
  },
  {
    suite: 'peers',
    title: 'Draining a backlog, one process',
    figures: /^(?<label>[^,]+)$/,
    best: 'highest',
  },
];

export interface Chart {
  suite: string;
  title: string;
  /** Its file in docs/images. */
  file: string;
  svg: string;
}

interface Bar {
  label: string;
  series: string;
  value: number;
}

/** The charts of all suites that have figures for one. A pure function of the results. */
export function charts(measurements: readonly Measurement[]): Chart[] {
  return specs.flatMap((spec) => {
    const { suite, title } = spec;
    const figures = measurements.filter((each) => each.suite === suite && each.baseline === undefined);
    const bars = figures.flatMap(({ name, value }): Bar[] => {
      const { label, series = '' } = spec.figures.exec(name)?.groups ?? {};
      return label === undefined ? [] : [{ label, series, value }];
    });
    if (bars.length === 0) return [];
    const unit = figures.find(({ name }) => spec.figures.test(name))?.unit ?? '';
    return [{ suite, title, file: `bench-${suite}.svg`, svg: barChart(title, unit, sorted(bars, spec.best)) }];
  });
}

function sorted(bars: readonly Bar[], best: ChartSpec['best']): readonly Bar[] {
  if (best === undefined) return bars;
  return [...bars].sort((a, b) => (best === 'highest' ? b.value - a.value : a.value - b.value));
}

const width = 760;
const labelWidth = 290;
const valueWidth = 120;
const barHeight = 16;
const groupGap = 12;
const top = 46;

const colours = `
  .panel { fill: #ffffff; stroke: #d0d7de }
  text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328 }
  .title { font-weight: 600; font-size: 15px }
  .dim { fill: #59636e }
  .s0 { fill: #1f6feb }
  .s1 { fill: #bf8700 }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #0d1117; stroke: #30363d }
    text { fill: #e6edf3 }
    .dim { fill: #9198a1 }
    .s0 { fill: #4493f8 }
    .s1 { fill: #d29922 }
  }`;

/** Horizontal bars, those with one label together, with the value at the end of each. */
function barChart(title: string, unit: string, bars: readonly Bar[]): string {
  const labels = [...new Set(bars.map(({ label }) => label))];
  const seriesNames = [...new Set(bars.map(({ series }) => series))];
  const longest = Math.max(...bars.map(({ value }) => value));
  const room = width - labelWidth - valueWidth - 20;
  const parts: string[] = [];
  let y = top + (seriesNames.length > 1 ? 26 : 0);
  for (const label of labels) {
    const own = bars.filter((bar) => bar.label === label);
    const middle = y + (own.length * barHeight) / 2 + 4.5;
    parts.push(`<text x="${labelWidth}" y="${middle}" text-anchor="end">${escapeXml(shortened(label))}</text>`);
    for (const { series, value } of own) {
      const length = Math.max(1, Math.round((value / longest) * room));
      const shade = seriesNames.indexOf(series) % 2;
      parts.push(
        `<rect class="s${shade}" x="${labelWidth + 10}" y="${y + 1}" width="${length}" height="${barHeight - 2}" rx="2"/>`,
      );
      parts.push(
        `<text class="dim" x="${labelWidth + 16 + length}" y="${y + 12.5}">${escapeXml(`${shown(value)} ${unit}`)}</text>`,
      );
      y += barHeight;
    }
    y += groupGap;
  }
  const height = y + 6;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escapeXml(title)}">`,
    `<style>${colours}\n</style>`,
    `<rect class="panel" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8"/>`,
    `<text class="title" x="20" y="30">${escapeXml(title)}</text>`,
    ...(seriesNames.length > 1 ? [legend(seriesNames)] : []),
    ...parts,
    '</svg>\n',
  ].join('\n');
}

function legend(seriesNames: readonly string[]): string {
  return seriesNames
    .map((name, index) => {
      const x = labelWidth + 10 + index * 210;
      return `<rect class="s${index % 2}" x="${x}" y="42" width="12" height="12" rx="2"/><text class="dim" x="${x + 18}" y="52.5">${escapeXml(name)}</text>`;
    })
    .join('\n');
}

/** As many characters as the column has room for. */
function shortened(label: string): string {
  return label.length > 42 ? `${label.slice(0, 41)}…` : label;
}

/** Three significant digits: a bar shows no more. */
function shown(value: number): string {
  return Number(value.toPrecision(3)).toLocaleString('en');
}

function escapeXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
