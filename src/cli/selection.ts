import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import type { OutboxAdmin } from '../admin/admin.ts';
import type { BulkOptions, BulkResult } from '../admin/chunks.ts';
import { PostcommitError } from '../errors.ts';
import { quantity } from '../format.ts';
import { aggregateArgument, timeArgument } from './arguments.ts';
import { endInterrupted, tellDuplicates, watched } from './bulk.ts';
import type { Context } from './context.ts';
import { withAdmin } from './context.ts';

/** Conditions that a command's flags can name. */
export interface FlagConditions {
  type?: string;
  aggregate?: [type: string, id?: string];
  from?: Date;
  to?: Date;
}

export function addConditions(command: Command): Command {
  return command
    .option('--type <type>', 'only this event type')
    .option('--aggregate <type:id>', 'only this aggregate, or with a type alone all of that type', aggregateArgument)
    .option('--from <time>', 'not before: 2h, 30m or 7d ago, or an ISO date', timeArgument)
    .option('--to <time>', 'before: 2h, 30m or 7d ago, or an ISO date', timeArgument);
}

/** Which events an operation is for. Nothing named at all is a mistake, never everything. */
export function targetOf<C extends FlagConditions>(
  ids: string[],
  conditions: C,
  all: boolean,
): { ids: string[] } | C | { all: true } {
  const ways = [ids.length > 0, Object.keys(conditions).length > 0, all].filter(Boolean).length;
  if (ways === 0)
    throw new PostcommitError('POSTCOMMIT_E_EMPTY_FILTER', 'Here: name ids, conditions such as --type, or --all.');
  if (ways > 1) {
    throw new PostcommitError('POSTCOMMIT_E_USAGE', 'Name ids, or conditions, or --all: one of the three.');
  }
  const { from, to } = conditions;
  // Refused before a question is asked.
  if (from && to && from > to) {
    const times = `--from is ${from.toISOString()}, --to is ${to.toISOString()}`;
    throw new PostcommitError('POSTCOMMIT_E_USAGE', `--from must not be after --to: ${times}.`);
  }
  if (all) return { all: true };
  return ids.length > 0 ? { ids } : conditions;
}

/** Asks before something that is hard to undo, unless --yes is given. Without a terminal, or with --json, it cannot ask and fails. */
export async function confirm({ terminal, output }: Context, question: string, yes: boolean): Promise<void> {
  if (yes) return;
  if (output.json || !terminal.stdin.isTTY) {
    const why = output.json ? '--json does not ask' : 'there is no terminal to ask on';
    throw new PostcommitError(
      'POSTCOMMIT_E_USAGE',
      `Pass --yes to confirm: ${why}, so nothing was changed. The question is: ${question}`,
    );
  }
  const prompt = createInterface({ input: terminal.stdin, output: terminal.stderr });
  const answer = await Promise.race([
    prompt.question(`${question} [y/N] `),
    new Promise<string>((resolve) => prompt.once('close', () => resolve(''))),
  ]);
  prompt.close();
  if (!/^y(es)?$/i.test(answer.trim())) {
    throw new PostcommitError(
      'POSTCOMMIT_E_USAGE',
      'Not confirmed, so nothing was changed. Pass --yes to go on without asking.',
    );
  }
}

/** Runs a bulk operation and says how many it were. Ids of which none fits are a failure; a condition that fits none is an answer. */
export async function runBulk<Result extends BulkResult & { next?: string }>(
  context: Context,
  { noun, done, named }: { noun: string; done: string; named: boolean },
  operation: (admin: OutboxAdmin, options: BulkOptions) => Promise<Result>,
): Promise<void> {
  const { output } = context;
  const told = (count: number) => `${quantity(count, noun)} ${done}`;
  const result = await watched(context, told(0), ({ signal, tell }) =>
    withAdmin(context, (admin) => operation(admin, { signal, onProgress: (count) => tell(told(count)) })),
  );
  const { count, interrupted, next, duplicates } = result;
  if (named && count === 0 && !interrupted) {
    throw new PostcommitError('POSTCOMMIT_E_NOT_FOUND', `None of the ids is a ${noun}.`);
  }
  output.show(result, () => {
    if (!interrupted) output.line(told(count));
    tellDuplicates(context, duplicates);
  });
  if (interrupted) {
    endInterrupted(context, told(count), `run the same command again${next ? ` with --after ${next}` : ''}`);
  }
}
