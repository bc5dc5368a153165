import { expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

test(
  'health compares the oldest due event and the dead letters with limits',
  withScenario(async (scenario) => {
    const { admin } = createOutbox({ db: fromPg(scenario.db.pool) });
    const strict = { oldestPendingMsMax: 0, deadLettersMax: 0 };
    expect(await admin.health(strict)).toEqual({ healthy: true, reasons: [], oldestPendingMs: null, deadLetters: 0 });
    await scenario.emit([{ aggregateId: 'a' }]);
    const late = await until(async () => (await admin.health(strict)).reasons[0], { what: 'the event is due' });
    expect(late).toMatch(/^the oldest due event has been due for \d+ ms$/);
    expect(await admin.health({ oldestPendingMsMax: 60_000 })).toMatchObject({ healthy: true });
    const fails = { scripted: { work: () => Promise.reject(new Error('no')) } };
    await scenario.relay('a', { handlers: fails, retry: { delaysMs: [] }, logger: false });
    await until(async () => (await admin.health()).deadLetters === 1, { what: 'it is a dead letter' });
    expect(await admin.health(strict)).toMatchObject({ healthy: false, reasons: ['1 dead letter'] });
    expect(await admin.health()).toMatchObject({ healthy: true });
    await expect(admin.health({ deadLettersMax: -1 })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
    await expect(admin.health({ deadLetterMax: 1 } as never)).rejects.toThrow(/deadLetterMax/);
  }),
);
