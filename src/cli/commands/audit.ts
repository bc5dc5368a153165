import type { Command } from 'commander';
import type { AuditEntry } from '../../outbox/operating/list-audit.ts';
import { wholeNumber } from '../arguments.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { instant } from '../output.ts';
import type { Terminal } from '../terminal.ts';

export function addAudit(program: Command, terminal: Terminal): void {
  program
    .command('audit')
    .summary('show what operators have done')
    .description(
      'Show what operators have done, newest first: who (the name as given, and the database role that logged in), when, what, why and how many events it changed. An operation without an end is running, or its process ended before it did. One that a signal stopped is interrupted, with how to continue it.',
    )
    .option('--limit <n>', 'maximum number of rows', wholeNumber(1, 1_000), 20)
    .option('--after <cursor>', 'start after this row: the cursor that the previous page printed')
    .addHelpText(
      'after',
      examples(['the last operations', 'audit'], ['more of them, for a script', 'audit --limit 1000 --json']),
    )
    .action(async (options: { limit: number; after?: string }, command: Command) => {
      const context = contextOf(command, terminal);
      const { output } = context;
      const page = await withAdmin(context, (admin) => admin.audit(options));
      output.show(page, () => {
        if (page.operations.length === 0) {
          output.line('no operations');
          return;
        }
        output.table(
          ['STARTED', 'BY', 'DATABASE ROLE', 'ACTION', 'CHANGED', 'TARGET', 'REASON', 'RESULT'],
          page.operations.map(toRow),
        );
        if (page.next !== undefined)
          output.line(output.paint.dim(`more rows: repeat the command with --after ${page.next}`));
      });
    });
}

function toRow(operation: AuditEntry): string[] {
  const { startedAt, finishedAt, by, databaseRole, action, changed, target, reason, error, interrupted } = operation;
  const end = interrupted === undefined ? 'done' : `interrupted, ${interrupted}`;
  const result = error ?? (finishedAt === undefined ? 'not finished' : end);
  return [
    instant(startedAt),
    by,
    databaseRole,
    action,
    changed === undefined ? '-' : String(changed),
    JSON.stringify(target),
    reason ?? '-',
    result,
  ];
}
