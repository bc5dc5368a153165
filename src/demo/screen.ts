import type { WriteStream } from 'node:tty';
import type { Colors } from './panel.ts';
import { milestoneLine, panelLines, plainLine } from './panel.ts';
import type { Scoreboard } from './scoreboard.ts';

/** Displays a running demo. */
export interface Screen {
  /** Prints a line that stays. */
  print(line: string): void;
  start(board: Scoreboard, totalMs: number): void;
  /** Draws the last state and stops updating. May be called again. */
  stop(): void;
}

const drawEveryMs = 125;
const lineEveryMs = 1_000;
const hideCursor = '\x1b[?25l';
const showCursor = '\x1b[?25h';

/** A terminal gets a live panel; a pipe or a file gets one line per second. */
export function openScreen(stream: NodeJS.WriteStream, colors: Colors, options: { quiet: boolean }): Screen {
  if (stream.isTTY && process.env.TERM !== 'dumb') return new LivePanel(stream as WriteStream, colors);
  return options.quiet ? new QuietScreen(stream) : new PlainLines(stream, colors);
}

class LivePanel implements Screen {
  readonly #stream: WriteStream;
  readonly #colors: Colors;
  #draw: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  #height = 0;

  constructor(stream: WriteStream, colors: Colors) {
    this.#stream = stream;
    this.#colors = colors;
  }

  print(line: string): void {
    this.#stream.write(`${line}\n`);
  }

  start(board: Scoreboard, totalMs: number): void {
    this.#draw = () => {
      const { columns = 80, rows = 24 } = this.#stream;
      const lines = panelLines(board.score(), totalMs, { columns, rows }, this.#colors);
      const up = this.#height > 0 ? `\x1b[${this.#height}A` : '';
      // Overwrites each line and clears its rest. Clearing the screen first would flicker.
      this.#stream.write(`${hideCursor}${up}\r${lines.map((line) => `${line}\x1b[K\n`).join('')}\x1b[J`);
      this.#height = lines.length;
    };
    this.#draw();
    this.#timer = setInterval(this.#draw, drawEveryMs);
    this.#stream.on('resize', this.#onResize);
    process.once('exit', this.#restoreCursor); // The cursor must not stay hidden, however the process ends.
  }

  stop(): void {
    if (!this.#draw) return;
    clearInterval(this.#timer);
    this.#draw();
    this.#draw = undefined;
    this.#stream.off('resize', this.#onResize);
    process.off('exit', this.#restoreCursor);
    this.#restoreCursor();
  }

  readonly #restoreCursor = () => {
    this.#stream.write(showCursor);
  };

  /** The terminal has rewrapped the old lines, so the start of the panel is unknown. */
  readonly #onResize = () => {
    this.#stream.write('\x1b[2J\x1b[H');
    this.#height = 0;
    this.#draw?.();
  };
}

class PlainLines implements Screen {
  readonly #stream: NodeJS.WriteStream;
  readonly #colors: Colors;
  #board: Scoreboard | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(stream: NodeJS.WriteStream, colors: Colors) {
    this.#stream = stream;
    this.#colors = colors;
  }

  print(line: string): void {
    this.#stream.write(`${line}\n`);
  }

  start(board: Scoreboard): void {
    this.#board = board;
    for (const milestone of board.milestones) this.print(milestoneLine(milestone, this.#colors));
    board.onMilestone = (milestone) => this.print(milestoneLine(milestone, this.#colors));
    this.#timer = setInterval(() => {
      if (board.phase !== 'starting') this.print(`  ${plainLine(board.score())}`);
    }, lineEveryMs);
  }

  stop(): void {
    clearInterval(this.#timer);
    if (this.#board) this.print(`  ${plainLine(this.#board.score())}`);
    this.#board = undefined;
  }
}

/** Prints only explicit lines: for scripts that read the JSON object. */
class QuietScreen implements Screen {
  readonly #stream: NodeJS.WriteStream;

  constructor(stream: NodeJS.WriteStream) {
    this.#stream = stream;
  }

  print(line: string): void {
    this.#stream.write(`${line}\n`);
  }

  start(): void {}

  stop(): void {}
}
