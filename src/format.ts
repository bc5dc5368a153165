import { inspect } from 'node:util';

/** `1 h 30 min`: at most two units. */
export function duration(ms: number): string {
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min${seconds % 60 ? ` ${seconds % 60} s` : ''}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h${minutes % 60 ? ` ${minutes % 60} min` : ''}`;
  return `${Math.floor(hours / 24)} d${hours % 24 ? ` ${hours % 24} h` : ''}`;
}

/** `5 min ago`. */
export function ago(time: Date, now: Date): string {
  return `${duration(Math.max(0, now.getTime() - time.getTime()))} ago`;
}

/** `12,345 events`, `1 event`. */
export function quantity(count: number, noun: string): string {
  return `${count.toLocaleString('en-US')} ${noun}${count === 1 ? '' : 's'}`;
}

/** `512 B`, `1.5 GiB`: as `pg_size_pretty` would, with one digit more. */
export function size(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(units.length - 1, bytes < 1 ? 0 : Math.floor(Math.log2(bytes) / 10));
  const amount = bytes / 1024 ** power;
  return `${power === 0 || amount >= 100 ? Math.round(amount) : Number(amount.toFixed(1))} ${units[power]}`;
}

/** A word of a command for a shell, in quotes if it needs them. */
export function shellQuoted(word: string): string {
  return /^[\w.:/@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A name as the last words of a command: after `--` if it would be taken for an option. */
export function shellOperand(name: string): string {
  return name.startsWith('-') ? `-- ${shellQuoted(name)}` : shellQuoted(name);
}

/** A value for a message, on one line and of limited length. Texts have quotes, so that `"5"` and `5` differ. */
export function shown(value: unknown): string {
  const text = typeof value === 'string' ? JSON.stringify(value) : inspect(value, { depth: 1, breakLength: Infinity });
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
