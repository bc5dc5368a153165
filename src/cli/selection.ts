import type { Command } from 'commander';
import { PostcommitError } from '../errors.ts';
import { aggregateArgument, timeArgument } from './arguments.ts';

/** The conditions of a command's options. */
export interface FlagConditions {
  type?: string;
  aggregate?: [type: string, id?: string];
  queue?: string;
  from?: Date;
  to?: Date;
}

export function addConditions(command: Command): Command {
  return command
    .option('--type <type>', 'only this event type')
    .option(
      '--aggregate <type:id>',
      'only this aggregate, or with a type alone all aggregates of that type',
      aggregateArgument,
    )
    .option('--queue <name>', 'only events emitted for this queue')
    .option('--from <time>', 'at or after this time: 2h, 30m or 7d ago, or an ISO date', timeArgument)
    .option('--to <time>', 'before this time: 2h, 30m or 7d ago, or an ISO date', timeArgument);
}

/**
 * The events that an operation changes. Neither ids, conditions nor --all is an error: it never means all events. `continues`: the
 * operation takes the times of its first call, so it does not matter what relative ones mean now.
 */
export function targetOf<C extends FlagConditions>(
  ids: string[],
  conditions: C,
  all: boolean,
  continues = false,
): { ids: string[] } | C | { all: true } {
  const ways = [ids.length > 0, Object.keys(conditions).length > 0, all].filter(Boolean).length;
  if (ways === 0)
    throw new PostcommitError('POSTCOMMIT_E_EMPTY_FILTER', 'Pass ids, conditions such as --type, or --all.');
  if (ways > 1) {
    throw new PostcommitError('POSTCOMMIT_E_USAGE', 'Pass ids, conditions or --all: exactly one of the three.');
  }
  const { from, to } = conditions;
  // Checked before the user is asked for confirmation.
  if (!continues && from && to && from > to) {
    const times = `--from is ${from.toISOString()}, --to is ${to.toISOString()}`;
    throw new PostcommitError('POSTCOMMIT_E_USAGE', `--from must not be after --to: ${times}.`);
  }
  if (all) return { all: true };
  return ids.length > 0 ? { ids } : conditions;
}
