import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { theme } from './theme.ts';

export interface Line {
  label: string;
  /** A colour variable of the style sheet. */
  colour: string;
  values: (number | null)[];
}

interface ChartProps {
  title: string;
  /** Milliseconds since 1970. */
  times: number[];
  lines: Line[];
  format: (value: number) => string;
}

const height = 132;
const font = '11px system-ui, "Liberation Sans", "DejaVu Sans", sans-serif';

function clock(seconds: number): string {
  return new Date(seconds * 1_000).toLocaleTimeString('en-GB');
}

/** Lines over the last minutes, with the value at the pointer, or the latest one, beside each name. */
export function Chart({ title, times, lines, format }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const pointer = useSignal<number | undefined>(undefined);
  const data: uPlot.AlignedData = [times.map((at) => at / 1_000), ...lines.map(({ values }) => values)];
  const latest = useRef(data);
  latest.current = data;
  const scheme = theme.value;

  useEffect(() => {
    const parent = box.current;
    if (parent === null) return;
    const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour('--dim'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
    const options: uPlot.Options = {
      width: parent.clientWidth || 300,
      height,
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { setScale: false } },
      scales: { y: { range: (_plot, _min, max) => [0, Math.max(1, (max ?? 0) * 1.15)] } },
      axes: [
        { ...axis, size: 24, font, space: 70, grid: { show: false }, values: (_plot, ticks) => ticks.map(clock) },
        { ...axis, size: 52, font, values: (_plot, ticks) => ticks.map(format) },
      ],
      series: [
        {},
        ...lines.map((line, index) => ({
          label: line.label,
          stroke: colour(line.colour),
          width: 1.75,
          points: { show: false },
          ...(index === 0 && { fill: `${colour(line.colour)}1f` }),
        })),
      ],
      hooks: {
        setCursor: [
          ({ cursor }) => {
            pointer.value = cursor.idx ?? undefined;
          },
        ],
      },
    };
    const created = new uPlot(options, latest.current, parent);
    plot.current = created;
    const observer = new ResizeObserver(() => created.setSize({ width: parent.clientWidth, height }));
    observer.observe(parent);
    return () => {
      observer.disconnect();
      created.destroy();
      plot.current = undefined;
    };
  }, [scheme]);
  useEffect(() => plot.current?.setData(latest.current), [times.length, times.at(-1)]);

  const index = pointer.value ?? times.length - 1;
  const shown = lines.map(({ label, colour, values }) => {
    const value = values[index];
    return { label, colour, text: value === null || value === undefined ? '–' : format(value) };
  });
  const spoken = shown.map(({ label, text }) => `${label} ${text}`).join(', ');
  return (
    <figure class="chart">
      <figcaption>
        <span class="name">{title}</span>
        <span class="legend">
          {shown.map(({ label, colour, text }) => (
            <span key={label} class={`series ${colour.slice(2)}`}>
              {label} <b>{text}</b>
            </span>
          ))}
        </span>
      </figcaption>
      <div ref={box} role="img" aria-label={`${title}: ${spoken}`} />
    </figure>
  );
}
