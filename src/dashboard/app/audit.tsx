import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { type AuditRow, post } from './api.ts';
import { messageOf } from './failure.ts';
import { number } from './format.ts';
import { Empty, ErrorText, Problem, Table, Time } from './parts.tsx';
import { route } from './route.ts';

export function AuditPage() {
  const rows = useSignal<AuditRow[] | undefined>(undefined);
  const next = useSignal<string | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  const load = async (after?: string) => {
    try {
      const page = await post<{ operations: AuditRow[]; next?: string }>('audit', {
        limit: 50,
        ...(after && { after }),
      });
      rows.value = after === undefined ? page.operations : [...(rows.value ?? []), ...page.operations];
      next.value = page.next;
      problem.value = undefined;
    } catch (error) {
      problem.value = messageOf(error);
    }
  };
  useEffect(() => void load(), [route.value.outbox]);
  return (
    <>
      <h1>Audit</h1>
      <Problem text={problem.value} />
      {rows.value?.length === 0 && <Empty>No operator has changed anything.</Empty>}
      {rows.value !== undefined && rows.value.length > 0 && (
        <Table label="Audit" columns={['When', 'Who', 'Database role', 'What', 'Which', 'Changed', 'Why', 'Result']}>
          {rows.value.map((row) => (
            <tr key={row.id}>
              <td>
                <Time at={row.startedAt} exact />
              </td>
              <td>{row.by}</td>
              <td>{row.databaseRole}</td>
              <td>{inWords(row.action)}</td>
              <td class="mono wrap">{targetText(row.target)}</td>
              <td class="number">{row.changed === undefined ? '–' : number(row.changed)}</td>
              <td>{row.reason ?? '–'}</td>
              <td class="wrap">{row.error ? <ErrorText text={row.error} /> : endOf(row)}</td>
            </tr>
          ))}
        </Table>
      )}
      {next.value !== undefined && (
        <button type="button" class="more" onClick={() => void load(next.value)}>
          More
        </button>
      )}
    </>
  );
}

function endOf({ finishedAt, interrupted }: AuditRow): string {
  if (interrupted !== undefined) return `interrupted, ${interrupted}`;
  return finishedAt ? 'done' : 'not finished';
}

/** `edit and retry` for `editAndRetry`. */
function inWords(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

/** E.g. `type order.created, from 2026-03-01`. */
function targetText(target: AuditRow['target']): string {
  const parts = Object.entries(target).map(([name, value]) => {
    const text = Array.isArray(value)
      ? value.join(' ')
      : typeof value === 'object'
        ? JSON.stringify(value)
        : String(value);
    return `${inWords(name)} ${text}`;
  });
  return parts.join(', ') || '–';
}
