import { stripVTControlCharacters } from 'node:util';
import type picocolors from 'picocolors';
import { count, seconds } from './proof.ts';
import type { FleetMember } from './relay-fleet.ts';
import type { Milestone, Score } from './scoreboard.ts';

/** Colours text, or returns it unchanged without colours. */
export type Colors = ReturnType<typeof picocolors.createColors>;

export interface PanelSize {
  columns: number;
  rows: number;
}

const sparks = '▁▂▃▄▅▆▇█';
const widthMax = 96;
/** Lines of the panel without relays and milestones. */
const fixedLines = 9;

/** The panel as lines, none wider than the terminal. A pure function of its arguments. */
export function panelLines(score: Score, totalMs: number, size: PanelSize, colors: Colors): string[] {
  const width = Math.max(20, Math.min(size.columns - 1, widthMax));
  const milestonesMax = Math.max(1, size.rows - fixedLines - score.relays.length - 1);
  return [
    titleLine(score, totalMs, width, colors),
    '',
    pair(['committed', count(score.committed), 'events'], ['rolled back', count(score.rolledBack), 'events'], colors),
    pair(['delivered', count(score.delivered), 'events'], ['in the queue', count(score.backlog), 'events'], colors),
    pair(['retries', count(score.retries), ''], ['dead letters', count(score.deadLetters), ''], colors),
    latencyLine(score, width, colors),
    rateLine(score, width, colors),
    '',
    ...score.relays.map((relay) => relayLine(relay, colors)),
    '',
    ...score.milestones.slice(-milestonesMax).map((milestone) => milestoneLine(milestone, colors)),
  ].map((line) => cutTo(width, line));
}

function titleLine(score: Score, totalMs: number, width: number, colors: Colors): string {
  const phase = {
    starting: 'starting the relays',
    writing: 'writing orders',
    draining: 'draining the queue',
    done: 'finished',
  }[score.phase];
  const left = `  ${colors.bold('Postcommit demo')}  ${colors.dim(phase)}`;
  const time = ` ${seconds(score.elapsedMs)}`.padStart(8);
  const room = width - visibleLength(left) - time.length - 2;
  const barWidth = Math.max(0, Math.min(24, room));
  const share = score.phase === 'done' ? 1 : Math.min(1, score.elapsedMs / totalMs);
  const full = Math.round(barWidth * share);
  const bar = colors.cyan('━'.repeat(full)) + colors.dim('─'.repeat(barWidth - full));
  return `${left}${' '.repeat(Math.max(1, room - barWidth + 2))}${bar}${time}`;
}

type Cell = readonly [label: string, value: string, unit: string];

function pair(left: Cell, right: Cell, colors: Colors): string {
  const cell = ([label, value, unit]: Cell) =>
    `${colors.dim(label.padEnd(13))}${colors.bold(value.padStart(9))} ${colors.dim(unit.padEnd(10))}`;
  return `  ${cell(left)}  ${cell(right)}`;
}

function latencyLine({ latencyMs, phase }: Score, width: number, colors: Colors): string {
  const over = (width < 90 ? '' : 'commit to handler, ') + (phase === 'done' ? 'without the outage' : 'last 2 s');
  const figure = (ms: number | undefined) => colors.bold((ms === undefined ? '-' : milliseconds(ms)).padStart(9));
  const p50 = `${colors.dim('latency p50'.padEnd(13))}${figure(latencyMs?.p50)} ${' '.repeat(10)}`;
  const p99 = `${colors.dim('latency p99'.padEnd(13))}${figure(latencyMs?.p99)}`;
  return `  ${p50}  ${p99} ${colors.dim(over)}`;
}

function rateLine({ rate, rates, phase }: Score, width: number, colors: Colors): string {
  const label = `  ${colors.dim((phase === 'done' ? 'rate overall' : 'rate').padEnd(13))}`;
  const figure = colors.bold(`${count(Math.round(rate))}/s`.padStart(9));
  return `${label}${figure} ${colors.cyan(sparkline(rates, width - 26))}`;
}

/** Each value as a bar, relative to the highest one. */
export function sparkline(values: readonly number[], width: number): string {
  const shown = values.slice(-Math.max(1, width));
  const highest = Math.max(...shown, 1);
  return shown.map((value) => sparks[Math.round((Math.max(0, value) / highest) * (sparks.length - 1))]).join('');
}

function relayLine(relay: FleetMember, colors: Colors): string {
  const paint = {
    starting: colors.yellow,
    delivering: colors.green,
    killed: colors.red,
    stopping: colors.dim,
    stopped: colors.dim,
  };
  const state = paint[relay.state](`${relay.state === 'killed' ? '✗' : '●'} ${relay.state.padEnd(11)}`);
  const done = `${colors.bold(count(relay.delivered).padStart(7))} ${colors.dim('delivered')}`;
  const busy = relay.state === 'delivering' ? `  ${String(relay.inFlight).padStart(3)} ${colors.dim('in flight')}` : '';
  return `  ${relay.name.padEnd(9)} ${colors.dim(`pid ${String(relay.pid).padEnd(8)}`)} ${state} ${done}${busy}`;
}

export function milestoneLine({ atMs, text, mood }: Milestone, colors: Colors): string {
  const paint = { plain: (line: string) => line, good: colors.green, bad: colors.red };
  return `  ${colors.dim(seconds(atMs).padStart(7))}  ${paint[mood](text)}`;
}

/** One line for a log file instead of the panel. */
export function plainLine(score: Score): string {
  const { latencyMs } = score;
  return [
    seconds(score.elapsedMs).padStart(7),
    `committed ${count(score.committed)}`,
    `rolled back ${count(score.rolledBack)}`,
    `delivered ${count(score.delivered)}`,
    `${count(Math.round(score.rate))}/s`,
    latencyMs ? `p50 ${milliseconds(latencyMs.p50)} p99 ${milliseconds(latencyMs.p99)}` : 'p50 - p99 -',
    `retries ${count(score.retries)}`,
    `dead letters ${count(score.deadLetters)}`,
    `queue ${count(score.backlog)}`,
  ].join('  ');
}

/** Wraps a text into lines of at most `width` characters, at spaces if possible. */
export function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  let rest = text;
  while (rest.length > width) {
    const space = rest.lastIndexOf(' ', width);
    const end = space > 0 ? space : width;
    lines.push(rest.slice(0, end));
    rest = rest.slice(end).trimStart();
  }
  return [...lines, rest];
}

function milliseconds(ms: number): string {
  return ms < 1_000 ? `${ms.toFixed(1)} ms` : seconds(ms);
}

function visibleLength(line: string): number {
  return stripVTControlCharacters(line).length;
}

/** Cuts a line, because a wrapped line would break the redraw. A cut line loses its colours, whose end may be missing. */
function cutTo(width: number, line: string): string {
  return visibleLength(line) <= width ? line : `${stripVTControlCharacters(line).slice(0, width - 1)}…`;
}
