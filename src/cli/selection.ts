import type { Command } from 'commander';
import { PostcommitError } from '../errors.ts';
import { aggregateArgument, timeArgument } from './arguments.ts';

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
