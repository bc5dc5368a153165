import { expect, test } from 'vitest';
import { onlyCallsRoutines } from '../../src/database/statement-settings.ts';
import { claimNextSql, claimOneSql, claimSql } from '../../src/outbox/delivering/claim.ts';
import { failAndSettleSql, failSql } from '../../src/outbox/delivering/fail.ts';
import { settleSql } from '../../src/outbox/delivering/settle.ts';

// Anything else is sent with BEGIN and COMMIT, which would double the messages of every claim.
test.each(Object.entries({ claimSql, claimNextSql, claimOneSql, settleSql, failSql, failAndSettleSql }))(
  '%s only calls routines, which have their own search_path',
  (_name, sql) => {
    for (const schema of ['postcommit', 'odd "name"(']) expect(onlyCallsRoutines(sql(schema))).toBe(true);
  },
);

test.each([
  'select count(*) from "postcommit".outbox_queue',
  'select "postcommit".settle($1), array_to_string($2)',
  'select "postcommit".settle(array_to_string($1))',
  'select "postcommit".settle($1::public.evil)',
  'select "postcommit".settle($1) where f()',
])('%s does more', (text) => expect(onlyCallsRoutines(text)).toBe(false));
