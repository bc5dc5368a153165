import { describe, expect, test } from 'vitest';
import { RoleScenario } from '../database/role-scenario.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { until } from '../support/wait.ts';

describe.each([18, 14] as const)('server_run(), on PostgreSQL %i', (version) => {
  test('changes when a backend is killed, unlike server_stamp(), and a relay may read it', async () => {
    const server = await startTestPostgres({ version });
    const scenario = await RoleScenario.create(server.connectionString);
    try {
      const relay = scenario.pool('relay');
      const read = async () => {
        const text = 'select postcommit.server_run() as run, postcommit.server_stamp() as stamp';
        return (await relay.query<{ run: string; stamp: string }>(text)).rows[0] as { run: string; stamp: string };
      };
      const before = await read();
      expect(await read()).toEqual(before);
      const victim = quietPool(server.connectionString, { max: 1 });
      const { pid } = (await victim.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0] as {
        pid: number;
      };
      process.kill(pid, 'SIGKILL');
      const after = await until(
        async () => {
          const now = await read();
          return now.run !== before.run && now;
        },
        { what: 'the server has recovered' },
      );
      expect(after.stamp).toBe(before.stamp);
      expect(await read()).toEqual(after);
      await victim.end();
    } finally {
      await scenario.close();
      await server.stop();
    }
  });
});
