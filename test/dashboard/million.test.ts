import pg from 'pg';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { insertDeliveredWithoutIndexes } from '../../bench/scale/history.ts';
import { type DashboardServer, serveDashboard } from '../../src/dashboard/index.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { launchBrowser, reasonToSkip } from './browser.ts';

const events = 1_000_000;
const limitMs = 1_000;

/** Why there is no browser. */
let missing: string | undefined;
let db: TestDatabase;
let browser: Browser;
let server: DashboardServer;
/** An event in the middle of the log. */
let wanted: { id: string; aggregate_id: string };

beforeAll(async () => {
  const launched = await launchBrowser().catch(reasonToSkip);
  if (typeof launched === 'string') {
    missing = launched;
    return;
  }
  browser = launched;
  db = await createTestDatabase();
  await fill();
  server = await serveDashboard({ port: 0, outboxes: { shop: createOutbox({ db: fromPg(db.pool) }).admin } });
}, 180_000);

beforeEach(({ skip }) => {
  if (missing !== undefined) skip(missing);
});

afterAll(async () => {
  await browser?.close();
  await server?.stop();
  await db?.close();
});

async function fill(): Promise<void> {
  const client = new pg.Client({ connectionString: db.url });
  await client.connect();
  try {
    // No WAL: half of the time.
    await client.query('alter table postcommit.outbox_events set unlogged');
    await insertDeliveredWithoutIndexes(client, events);
    await client.query('analyze postcommit.outbox_events, postcommit.outbox_deliveries');
    const half = 'select id, aggregate_id from postcommit.outbox_events order by seq offset $1 limit 1';
    const { rows } = await client.query(half, [events / 2]);
    wanted = rows[0];
    await client.query("update postcommit.outbox_events set event_type = 'order.rare' where id = $1", [wanted.id]);
  } finally {
    await client.end();
  }
}

/** Types into fields of the search, presses Enter, and returns the milliseconds until the page shows `text`. */
async function search(fields: Record<string, string>, text: string): Promise<number> {
  const page: Page = await browser.newPage();
  page.setDefaultTimeout(15_000);
  await page.goto(`${server.url}/#/shop/events`);
  await page.getByRole('table').waitFor();
  for (const [name, value] of Object.entries(fields)) await page.locator(`input[name=${name}]`).fill(value);
  // Measured in the page: what the test needs to see the row is no part of it.
  await page.evaluate(`
    window.took = new Promise((resolve) => {
      addEventListener('keydown', ({ key }) => {
        if (key !== 'Enter') return;
        const pressed = performance.now();
        const isShown = () => {
          const rows = document.querySelectorAll('main tbody tr');
          const first = rows.length === 1 ? rows[0].innerText : document.querySelector('main .story')?.innerText ?? '';
          return first.includes(${JSON.stringify(text)});
        };
        const observer = new MutationObserver(() => {
          if (isShown()) requestAnimationFrame(() => resolve(performance.now() - pressed));
        });
        observer.observe(document.body, { childList: true, subtree: true, characterData: true });
      }, { capture: true });
    });
    undefined`); // Not the promise: it would be awaited.
  await page.locator(`input[name=${Object.keys(fields).at(-1)}]`).press('Enter');
  const tookMs = (await page.evaluate('window.took')) as number;
  await page.close();
  return tookMs;
}

test('search finds an event among 1,000,000 in under a second', async () => {
  const shortId = wanted.id.slice(-12);
  const took = {
    type: await search({ type: 'order.rare' }, shortId),
    aggregate: await search({ type: 'order.rare', aggregateType: 'order', aggregateId: wanted.aggregate_id }, shortId),
    id: await search({ id: wanted.id }, wanted.id),
  };
  for (const [how, tookMs] of Object.entries(took)) expect(tookMs, how).toBeLessThan(limitMs);
});
