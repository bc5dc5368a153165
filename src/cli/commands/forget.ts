import type { Command } from 'commander';
import type { ForgetResult } from '../../admin/forget.ts';
import { quantity } from '../../format.ts';
import { endInterrupted, watched } from '../bulk.ts';
import type { Context } from '../context.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { printable } from '../output.ts';
import type { Terminal } from '../terminal.ts';

export function addForget(program: Command, terminal: Terminal): void {
  program
    .command('forget')
    .summary('give up what is owed to a destination or handler that no relay has any more')
    .description(
      'Tell what becomes of the events that are owed to a destination, or to a handler (type:name), if it is forgotten. With --yes do it: events that have reached their other targets become SENT, those that have reached none are given up as discarded dead letters, and those that wait for other destinations too go on waiting for these. Refused while a living relay has it.',
    )
    .argument('<target>', 'a destination’s name, as `postcommit destinations` shows it, or a handler as type:name')
    .option('--yes', 'do it; without it nothing is changed')
    .addHelpText(
      'after',
      examples(
        ['what would happen?', 'forget kafka'],
        ['the destination is gone for good', 'forget kafka --yes'],
        ['a handler that was renamed', 'forget order.created:send-receipt --yes'],
      ),
    )
    .action(async (target: string, { yes = false }: { yes?: boolean }, command: Command) => {
      const context = contextOf(command, terminal);
      const result = await watched(context, 'looking for events', ({ signal, tell: show }) => {
        const onProgress = (count: number) => show(`${quantity(count, 'event')} settled without it`);
        return withAdmin(context, (admin) => admin.forget(target, { dryRun: !yes, signal, onProgress }));
      });
      context.output.show({ target, dryRun: !yes, ...result }, () => tell(context, printable(target), yes, result));
      if (result.interrupted) endInterrupted(context, 'not all of it is forgotten', 'run the same command again');
    });
}

function tell({ output }: Context, target: string, isDone: boolean, result: ForgetResult): void {
  const { sent, discarded, stillWaiting, queued, deadLetters, usedBy, inFlight, interrupted } = result;
  output.line(!isDone ? `if ${target} is forgotten:` : interrupted ? 'done so far:' : `${target} is forgotten`);
  const lines: [count: number, noun: string, what: string][] = [
    [sent, 'event', 'that reached all other targets: SENT, recorded without it'],
    [discarded, 'event', 'that reached no target: given up, as discarded dead letters'],
    [stillWaiting, 'event', 'that wait for other destinations too: they go on waiting for these'],
    [queued, 'event', 'in the queue: relays deliver them without it'],
    [deadLetters, 'dead letter', 'that no longer owe it: a retry does not wait for it'],
  ];
  for (const [count, noun, what] of lines) if (count > 0) output.line(`  ${quantity(count, noun)} ${what}`);
  if (lines.every(([count]) => count === 0)) output.line(interrupted ? '  nothing' : '  nothing is owed to it');
  if (usedBy.length > 0) {
    const names = usedBy.map(printable).join(', ');
    output.line(output.paint.yellow(`living relays have it, so it cannot be forgotten now: ${names}`));
  } else if (!isDone) {
    output.line(output.paint.dim(`nothing was changed; do it with: postcommit forget ${target} --yes`));
  }
  if (inFlight > 0) {
    output.line(output.paint.yellow(`relays hold ${quantity(inFlight, 'event')} that may be owed to it: run it again`));
  }
}
