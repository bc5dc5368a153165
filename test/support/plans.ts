import type pg from 'pg';

/** A node of a plan as EXPLAIN (ANALYZE, FORMAT JSON) and auto_explain tell it. */
export interface PlanNode {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  'Shared Hit Blocks'?: number;
  'Shared Read Blocks'?: number;
  Plans?: PlanNode[];
}

export function* nodesOf(node: PlanNode): Generator<PlanNode> {
  yield node;
  for (const child of node.Plans ?? []) yield* nodesOf(child);
}

/** How many rows of a table the scans of these plans read. */
export function rowsRead(plans: readonly PlanNode[], table: string): number {
  return plans
    .flatMap((plan) => [...nodesOf(plan)])
    .filter((node) => node['Relation Name'] === table && node['Node Type'].includes('Scan'))
    .map((node) => (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops'])
    .reduce((sum, rows) => sum + rows, 0);
}

/**
 * Runs a statement in a transaction that is rolled back and returns the plan of every statement that ran inside of it,
 * in order, the outermost last. EXPLAIN shows a function as one node; auto_explain tells what really ran, also when
 * the plan was made long before. Needs a superuser.
 */
export async function nestedPlans(client: pg.PoolClient, text: string, values: unknown[]): Promise<PlanNode[]> {
  const plans: PlanNode[] = [];
  const collect = ({ message }: { message?: string | undefined }) => {
    const json = message?.slice(message.indexOf('{'));
    if (message?.includes('plan:') && json) plans.push((JSON.parse(json) as { Plan: PlanNode }).Plan);
  };
  await client.query(`load 'auto_explain'`);
  await client.query('begin');
  try {
    await client.query(`set local auto_explain.log_min_duration = 0;
      set local auto_explain.log_nested_statements = on; set local auto_explain.log_analyze = on;
      set local auto_explain.log_timing = off; set local auto_explain.log_buffers = on;
      set local auto_explain.log_format = json; set local client_min_messages = log`);
    client.on('notice', collect);
    await client.query(text, values);
  } finally {
    client.off('notice', collect);
    await client.query('rollback');
  }
  return plans;
}
