import { duration } from '../format.ts';

/** How far a long operation is. */
export interface ProgressState {
  text: string;
  /** The part that is done, from 0 to 1. Without it there is no bar. */
  share?: number | undefined;
  elapsedMs: number;
  stopping: boolean;
}

const barCharacters = 20;
/** On a narrower terminal the text needs the room. */
const columnsMinForBar = 72;
/** Before that, the remaining time would jump. */
const shareMinForEstimate = 0.05;
const elapsedMsMinForEstimate = 2_000;

/** One line that fits the terminal: a line that wraps could not be overwritten. */
export function progressLine({ text, share, elapsedMs, stopping }: ProgressState, columns = 80): string {
  const part = share === undefined ? undefined : Math.min(1, Math.max(0, share));
  const times = [duration(elapsedMs), remaining(part, elapsedMs)].filter((time) => time !== undefined);
  const end = stopping ? '; stopping, press Ctrl-C again to end it immediately' : '';
  const line = `${bar(part, columns)}${text} (${times.join(', ')}${end})`;
  return line.length < columns ? line : `${line.slice(0, columns - 2)}…`;
}

function bar(share: number | undefined, columns: number): string {
  if (share === undefined || columns < columnsMinForBar) return '';
  const full = Math.floor(share * barCharacters);
  const percent = `${Math.floor(share * 100)} %`.padStart(5);
  return `${'█'.repeat(full)}${'░'.repeat(barCharacters - full)} ${percent}  `;
}

function remaining(share: number | undefined, elapsedMs: number): string | undefined {
  if (share === undefined || share < shareMinForEstimate || elapsedMs < elapsedMsMinForEstimate) return undefined;
  return share === 1 ? undefined : `about ${duration((elapsedMs * (1 - share)) / share)} left`;
}
