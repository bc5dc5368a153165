import type { Command } from 'commander';
import type { ForgetResult } from '../../admin/forgotten-targets.ts';
import { quantity, shellOperand } from '../../format.ts';
import { endInterrupted, runWithProgress } from '../bulk.ts';
import type { Context } from '../context.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { printable } from '../output.ts';
import type { Terminal } from '../terminal.ts';

export function addForget(program: Command, terminal: Terminal): void {
  program
    .command('forget')
    .summary('forget a removed destination or handler, so that no event waits for it')
    .description(
      'Show what happens to the events that are still owed to a removed destination, or to a removed handler (type:name), if it is forgotten. With --yes, do it. Events that reached their other targets become SENT. Events that reached no target become discarded dead letters. Events that also wait for other destinations keep waiting for those. Fails while a live relay has the target.',
    )
    .argument('<target>', 'name of a destination, see `postcommit destinations`, or a handler as type:name')
    .option('--yes', 'make the change; without --yes nothing changes')
    .addHelpText(
      'after',
      examples(
        ['what would happen?', 'forget kafka'],
        ['the destination was removed', 'forget kafka --yes'],
        ['the handler was renamed', 'forget order.created:send-receipt --yes'],
      ),
    )
    .action(async (target: string, { yes = false }: { yes?: boolean }, command: Command) => {
      const context = contextOf(command, terminal);
      const { result, stoppedBy } = await runWithProgress(context, 'looking for events', ({ signal, report }) => {
        const onProgress = (count: number) => report(`${quantity(count, 'event')} changed`);
        return withAdmin(context, (admin) => admin.forget(target, { dryRun: !yes, signal, onProgress }));
      });
      context.output.show({ target, dryRun: !yes, ...result }, () => print(context, printable(target), yes, result));
      if (result.interrupted && stoppedBy)
        endInterrupted(context, stoppedBy, 'some events are still owed to it', 'run the same command again');
    });
}

function print({ output }: Context, target: string, isDone: boolean, result: ForgetResult): void {
  const { sent, discarded, stillWaiting, queued, deadLetters, usedBy, inFlight, interrupted } = result;
  output.line(!isDone ? `if ${target} is forgotten:` : interrupted ? 'done so far:' : `${target} is forgotten`);
  const lines: [count: number, noun: string, what: string][] = [
    [sent, 'event', 'delivered to all other targets: SENT'],
    [discarded, 'event', 'delivered to no target: discarded as dead letters'],
    [stillWaiting, 'event', 'also waiting for other destinations: still waiting for those'],
    [queued, 'event', 'in the queue: delivered to their other targets only'],
    [deadLetters, 'dead letter', 'no longer owed to it: a retry skips it'],
  ];
  for (const [count, noun, what] of lines) if (count > 0) output.line(`  ${quantity(count, noun)} ${what}`);
  if (lines.every(([count]) => count === 0)) output.line(interrupted ? '  nothing' : '  no event is owed to it');
  if (usedBy.length > 0) {
    const names = usedBy.map(printable).join(', ');
    output.line(output.paint.yellow(`it cannot be forgotten while live relays have it: ${names}`));
  } else if (!isDone) {
    const command = output.repeatFlags('npx postcommit forget --yes');
    output.line(output.paint.dim(`nothing was changed; to forget it: ${command} ${shellOperand(target)}`));
  }
  if (inFlight > 0) {
    output.line(
      output.paint.yellow(`${quantity(inFlight, 'event')} not changed: claimed by a relay; run the command again`),
    );
  }
}
