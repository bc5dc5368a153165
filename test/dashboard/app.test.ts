import { mkdirSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import type pg from 'pg';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { appFiles } from '../../src/dashboard/app-files.ts';
import { type DashboardServer, type ServeDashboardOptions, serveDashboard } from '../../src/dashboard/index.ts';
import type { ReplayOptions, ReplayTarget } from '../../src/index.ts';
import { createOutbox, fromPg, type OutboxAdmin, PostcommitError } from '../../src/index.ts';
import { Scene } from '../admin/scene.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';
import { findViolations, launchBrowser, reasonToSkip } from './browser.ts';

const token = 'operator-token-0123456789';
const readOnlyToken = 'reader-token-0123456789';
const pictures = new URL('generated/', import.meta.url).pathname;
const hostile = '"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>';

/** Why there is no browser. */
let missing: string | undefined;
let scene: Scene;
let browser: Browser;
let server: DashboardServer;
const kafka = new ScriptedPublisher();
const servers: DashboardServer[] = [];
const contexts: BrowserContext[] = [];
/** Console errors, violations of the policy and requests to other hosts, of all pages. */
const complaints: string[] = [];

async function serve(options: Partial<ServeDashboardOptions> = {}): Promise<DashboardServer> {
  const started = await serveDashboard({ port: 0, outboxes: { shop: scene.admin }, ...options });
  servers.push(started);
  return started;
}

interface Wish {
  at?: DashboardServer;
  phone?: boolean;
  dark?: boolean;
}

async function open(path: string, { at = server, phone = false, dark = false }: Wish = {}): Promise<Page> {
  const context = await browser.newContext({
    viewport: phone ? { width: 390, height: 844 } : { width: 1280, height: 900 },
    colorScheme: dark ? 'dark' : 'light',
    reducedMotion: 'reduce',
  });
  contexts.push(context);
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) complaints.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(at.url) && !/^(data|blob):/.test(request.url())) complaints.push(request.url());
  });
  await page.goto(`${at.url}/#/shop/${path}`);
  return page;
}

async function textOf(page: Page): Promise<string> {
  return page.locator('body').innerText();
}

/** Emits an event that becomes a dead letter. */
async function emitDead(aggregate: string): Promise<string> {
  const before = (await scene.admin.counts()).failed;
  const id = await scene.emitOne({ aggregate: ['order', aggregate], payload: { does: 'reject' } });
  await until(async () => (await scene.admin.counts()).failed > before, { what: 'there is a dead letter' });
  return id;
}

beforeAll(async () => {
  mkdirSync(pictures, { recursive: true });
  const launched = await launchBrowser().catch(reasonToSkip);
  if (typeof launched === 'string') {
    missing = launched;
    return;
  }
  browser = launched;
  scene = await Scene.create();
  await scene.relay({ destinations: { kafka }, poison: 'block', pollIntervalMs: 100 });
  server = await serve();
}, 180_000);

beforeEach(({ skip }) => {
  if (missing !== undefined) skip(missing);
});

afterEach(() => {
  scene.healed = false;
});
afterAll(async () => {
  await Promise.all(contexts.map((context) => context.close()));
  await browser?.close();
  await Promise.all(servers.map((each) => each.stop()));
  await scene?.close();
});

test('the app is small', () => {
  const bytes = Object.values(appFiles()).reduce((sum, text) => sum + gzipSync(text).length, 0);
  expect(bytes).toBeLessThan(100_000);
});

test('the overview follows the outbox', async () => {
  const page = await open('overview');
  await page.getByRole('heading', { name: 'All events are being delivered.' }).waitFor();
  await scene.emit(Array.from({ length: 7 }, (_, n) => ({ aggregate: ['order', `live-${n}`] as const })));
  await page.locator('.figure', { hasText: 'In the log, delivered' }).getByText('7', { exact: true }).waitFor();
  expect(await page.getByRole('row', { name: /tester/ }).innerText()).toContain('alive');
});

test('an event is found by its id, and by type and header', async () => {
  const headers = { tenant: 'acme' };
  const id = await scene.emitOne({ type: 'invoice.sent', aggregate: ['invoice', '9'], headers });
  const page = await open('events');
  await page.getByLabel('Type', { exact: true }).fill('invoice.sent');
  await page.getByText('Time, header, error text, queue').click();
  await page.getByLabel('Header').fill('tenant');
  await page.getByLabel('Value').fill('acme');
  await page.getByRole('button', { name: 'Search' }).click();
  await page.getByRole('link', { name: `…${id.slice(-12)}` }).click();
  await page.getByText('Delivered', { exact: true }).waitFor();
  expect(await textOf(page)).toContain(id);
  await page.getByRole('link', { name: 'invoice 9' }).click();
  await page.locator('.timeline').getByRole('link', { name: 'invoice.sent' }).waitFor();
  // Nothing of the search is in the address.
  expect(page.url()).not.toContain('acme');
});

test('a dead letter is edited and retried until it is delivered', async () => {
  const id = await emitDead('edited');
  const page = await open(`event/${id}`);
  await page.getByRole('button', { name: 'Edit and retry' }).click();
  await page.getByRole('textbox', { name: 'Payload' }).fill('{ "does": ');
  await page.getByRole('button', { name: 'Save and retry' }).click();
  await page.getByText('This is not JSON').waitFor();
  await page.getByRole('textbox', { name: 'Payload' }).fill('{ "does": "ok" }');
  await page.getByLabel('Why?').fill('a typo');
  await page.getByRole('button', { name: 'Save and retry' }).click();
  await until(() => scene.delivered.includes(id), { what: 'the edited event is delivered' });
  // Without a reload.
  await page.getByText('Delivered', { exact: true }).waitFor();
  expect(await textOf(page)).toMatch(/Payload edited by dashboard[\s\S]*a typo/);
});

test('a group of dead letters is retried, with a preview and a result; a second operator sees that it is gone', async () => {
  const before = (await scene.admin.counts()).failed;
  const amount = 40;
  await scene.emit(
    Array.from({ length: amount }, (_, n) => ({
      aggregate: ['order', `bulk-${n}`] as const,
      payload: { does: 'fail' } as const,
    })),
  );
  await until(async () => (await scene.admin.counts()).failed === before + amount, { what: 'all are dead' });
  const [page, second] = [await open('dead-letters'), await open('dead-letters')];
  const groupOf = (each: Page) => each.getByRole('listitem').filter({ hasText: 'attempt 1 failed as scripted' });
  await groupOf(second).getByRole('button', { name: 'Show' }).click();
  await second.getByRole('table').waitFor();
  scene.healed = true;
  await groupOf(page).getByRole('button', { name: 'Retry' }).first().click();
  await page.getByText(`${amount} events will be retried.`).waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Retry' }).click();
  await page.getByText(`Done. ${amount} events changed.`).waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Close', exact: true }).last().click();
  await groupOf(page).waitFor({ state: 'detached' });
  await groupOf(second).getByRole('button', { name: 'Discard' }).click();
  await second.getByRole('dialog').getByRole('button', { name: 'Discard' }).click();
  await second.getByText('Another operator or a relay was faster').waitFor();
  scene.healed = false;
});

test('the retry of 10,000 dead letters shows its progress', async () => {
  await scene.db.query('alter table postcommit.outbox_events disable trigger user');
  await scene.db.query(
    `with e as (
       insert into postcommit.outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
       select gen_random_uuid(), 'bulk', n::text, 'order.paid', '{}' from generate_series(1, 10000) n
       returning seq, postcommit.key_hash(aggregate_type, aggregate_id, ordering_key) as key
     )
     insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, error)
     select seq, 'exhausted', 1, key, 'timeout of request ' || seq from e`,
  );
  for (const name of ['enqueue', 'begin', 'truncate']) {
    await scene.db.query(`alter table postcommit.outbox_events enable always trigger outbox_events_${name}`);
  }
  const page = await open('dead-letters');
  const group = page.getByRole('listitem').filter({ hasText: 'timeout of request' });
  await group.getByRole('button', { name: 'Retry' }).first().click();
  await page.getByText('10,000 events will be retried.').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Retry' }).click();
  await page.getByText('changed so far').waitFor();
  await page.getByText('Done. 10,000 events changed.').waitFor();
});

test('a replay that was interrupted is continued where it ended', async () => {
  const id = await scene.emitOne({ type: 'order.replayed' });
  await until(async () => (await scene.admin.find(id))?.status === 'SENT', { what: 'the event is delivered' });
  const continued: ReplayOptions[] = [];
  const admin: OutboxAdmin = Object.assign(Object.create(scene.admin), {
    as: () => admin,
    replay: (target: ReplayTarget, options: ReplayOptions) => {
      if (options.after === undefined) return scene.admin.replay(target, { signal: AbortSignal.abort() });
      continued.push(options);
      if (continued.length === 1) return Promise.reject(new PostcommitError('POSTCOMMIT_E_DATABASE_UNREACHABLE'));
      return scene.admin.replay(target, options);
    },
  });
  const page = await open('operate', { at: await serve({ outboxes: { shop: admin } }) });
  await page.getByLabel('Type', { exact: true }).fill('order.replayed');
  await page.getByRole('button', { name: 'Replay delivered' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Replay' }).click();
  await page.getByText('Stopped. 0 events changed.').waitFor();
  const next = page.getByRole('dialog').getByRole('button', { name: 'Continue' });
  await next.click();
  await page.getByText('It failed.').waitFor();
  await next.click();
  await page.getByText('Done. 1 event changed.').waitFor();
  expect(await next.count()).toBe(0);
  expect(continued[0]?.after).toBe(continued[1]?.after);
});

test('a destination is paused and resumed', async () => {
  const page = await open('operate');
  const row = page.getByRole('row', { name: /destination kafka/ });
  await row.getByRole('button', { name: 'Pause' }).click();
  await page.getByLabel('Why?').fill('upgrade of the cluster');
  await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click();
  await page.getByText('Done.').waitFor();
  await page.getByRole('dialog').getByText('Close', { exact: true }).click();
  await row.getByText('upgrade of the cluster').waitFor();
  expect((await scene.admin.destinations())[0]).toMatchObject({ state: 'paused' });
  await row.getByRole('button', { name: 'Resume' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Resume' }).click();
  await row.getByText('up', { exact: true }).waitFor();
  const audit = await open('audit');
  await audit.getByRole('row', { name: /pause .*upgrade of the cluster/ }).waitFor();
});

test('who signs in with a read-only token sees no buttons that change anything', async () => {
  const id = await emitDead('read-only');
  const guarded = await serve({ token, readOnlyToken });
  const page = await open('dead-letters', { at: guarded });
  await page.getByLabel('Token').fill('wrong-token-0123456789');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('alert').waitFor();
  await page.getByLabel('Token').fill(readOnlyToken);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('rejected as scripted').first().waitFor();
  expect(await page.getByRole('button', { name: /retry|discard/i }).count()).toBe(0);
  await page.goto(`${guarded.url}/#/shop/event/${id}`);
  await page.getByText('Dead letter: rejected').waitFor();
  expect(await page.getByRole('button', { name: /retry|discard/i }).count()).toBe(0);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Token').waitFor();
});

test('hostile texts, a thousand lines of error and a payload of 5 MB are shown as text', async () => {
  const relay = await scene.relay({
    name: hostile,
    queues: { hostile: 1 },
    handlers: {
      'order.created': {
        work: () => {
          throw new Error([hostile, ...Array.from({ length: 1_000 }, (_, n) => `line ${n}`)].join('\n'));
        },
      },
    },
  });
  const payload = { text: hostile, long: 'x'.repeat(5_000_000) } as object;
  const headers = { tenant: hostile };
  const outbox = createOutbox<pg.PoolClient>({ db: fromPg(scene.db.pool), payloadBytesMax: 8_000_000 });
  const event = { type: 'order.created', aggregate: ['order', hostile] as const, payload, headers, queue: 'hostile' };
  const id = await outbox.transaction((_tx, emit) => emit(event));
  await until(async () => (await scene.admin.find(id))?.deadLetter, { what: 'the hostile event is dead' });
  for (const path of [
    'overview',
    'events',
    `event/${id}`,
    `aggregate/order/${encodeURIComponent(hostile)}`,
    'dead-letters',
  ]) {
    const page = await open(path);
    await page.getByText('onerror=').first().waitFor();
    expect(await page.evaluate('window.hacked')).toBeUndefined();
    if (!path.startsWith('event/')) continue;
    const download = page.waitForEvent('download');
    await page.getByRole('link', { name: 'Download' }).click();
    expect((await download).suggestedFilename()).toBe(`${id}.json`);
  }
  await scene.admin.discard({ ids: [id] });
  await relay.stop();
});

test('the keyboard alone suffices', async () => {
  const id = await emitDead('keyboard');
  const page = await open('overview');
  await page.getByRole('heading', { level: 1 }).waitFor();
  await page.keyboard.press('Tab');
  expect(await page.evaluate('document.activeElement.textContent')).toContain('Skip');
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  for (const [key, name] of [
    ['2', 'Events'],
    ['3', 'Dead letters'],
    ['4', 'Operate'],
    ['5', 'Audit'],
  ] as const) {
    await page.keyboard.press(key);
    await page.getByRole('heading', { level: 1, name }).waitFor();
  }
  await page.keyboard.press('/');
  await page.locator('input[name=id]:focus').waitFor();
  await page.keyboard.type(id);
  await page.keyboard.press('Enter');
  const retry = page.getByRole('button', { name: 'Retry', exact: true });
  await retry.focus();
  await page.keyboard.press('Enter');
  scene.healed = true;
  // A field of a dialog that is not shown yet takes no focus.
  await page.getByRole('dialog').waitFor();
  await page.getByLabel('Why?').focus();
  await page.keyboard.press('Enter');
  await page.getByText('Done. 1 event changed.').waitFor();
  await until(() => scene.delivered.includes(id), { what: 'the event is delivered' });
  scene.healed = false;
});

/** An admin whose database is down while `isDown` returns true. */
function adminThatFails(isDown: () => boolean): OutboxAdmin {
  return new Proxy(scene.admin, {
    get: (admin, name) => {
      const value = Reflect.get(admin, name, admin);
      if (name !== 'counts') return typeof value === 'function' ? value.bind(admin) : value;
      return () => (isDown() ? Promise.reject(new Error('connect ECONNREFUSED')) : admin.counts());
    },
  });
}

test('the overview has lanes and partitions', async () => {
  const page = await open('overview');
  await page.getByRole('row', { name: /tester .*polling: notifications arrive/ }).waitFor();
  await page.getByText('The log is one table').waitFor();
  await scene.admin.partitions.convert('day');
  await page.reload();
  await page.getByText('The log is partitioned by day').waitFor();
  await page.getByRole('region', { name: 'Partitions' }).getByRole('row', { name: /open/ }).waitFor();
});

test('of several outboxes all are listed, also one that is down', async () => {
  let down = true;
  const outboxes = { shop: scene.admin, billing: adminThatFails(() => down) };
  const page = await open('overview', { at: await serve({ outboxes, onError: () => {} }) });
  const list = page.getByRole('region', { name: 'Outboxes' }).last();
  await list.getByRole('row', { name: /billing unreachable/ }).waitFor();
  await list.getByRole('row', { name: /shop (healthy|attention|trouble)/ }).waitFor();
  await list.getByRole('link', { name: 'billing' }).click();
  await page.getByRole('heading', { name: 'billing' }).waitFor();
  await page.getByRole('alert').waitFor();
  down = false;
  await page.getByRole('list', { name: 'Figures' }).waitFor();
  await list.getByRole('row', { name: /billing (healthy|attention|trouble)/ }).waitFor();
});

test('while the database is down the page says so, and it recovers', async () => {
  let down = false;
  const failing = adminThatFails(() => down);
  const page = await open('overview', { at: await serve({ outboxes: { shop: failing } }) });
  await page.getByRole('list', { name: 'Figures' }).waitFor();
  down = true;
  await page.getByRole('alert').getByText('The figures are from before.').waitFor();
  down = false;
  await page.getByRole('alert').waitFor({ state: 'detached' });
});

test('every page is accessible, light and dark, and fits a phone', async () => {
  const id = await emitDead('pictures');
  await scene.emit([{ aggregate: ['order', 'pictures'] }]);
  const paths = ['overview', 'events', `event/${id}`, 'aggregate/order/pictures', 'dead-letters', 'operate', 'audit'];
  const found: string[] = [];
  for (const dark of [false, true]) {
    for (const phone of [false, true]) {
      const page = await open('overview', { phone, dark });
      for (const path of paths) {
        await page.evaluate(`location.hash = ${JSON.stringify(`#/shop/${path}`)}`);
        await page.locator('main h1').waitFor();
        await page.locator('main :is(table, .timeline, .group)').first().waitFor();
        await page.getByText('Checking …').waitFor({ state: 'detached' });
        const width = (await page.evaluate('document.documentElement.scrollWidth')) as number;
        if (phone && width > 390) found.push(`${path} is ${width} pixels wide`);
        const tab = (await page.evaluate(
          "document.querySelector('nav [aria-current]').getBoundingClientRect().right",
        )) as number;
        if (tab > (phone ? 390 : 1280)) found.push(`the tab of ${path} is not in view`);
        const narrow = (await page.evaluate(
          "[...document.querySelectorAll('td .wrap, td.wrap')].some((cell) => cell.innerText.length > 20 && cell.getBoundingClientRect().width < 100)",
        )) as boolean;
        if (narrow) found.push(`a text of ${path} has one word per line`);
        const cut = (await page.evaluate(
          "[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.ariaLabel).join()",
        )) as string;
        if (cut !== '') found.push(`of ${path} one must scroll sideways: ${cut}`);
        const times = (await page.evaluate(
          "[...document.querySelectorAll('[type=datetime-local]')].some((each) => each.checkVisibility() && each.clientWidth < 195)",
        )) as boolean;
        if (times) found.push(`a time of ${path} is cut off`);
        if (!phone) found.push(...(await findViolations(page)).map((violation) => `${path}: ${violation}`));
        const name = path.split('/')[0];
        await page.screenshot({
          path: `${pictures}${name}-${phone ? 'phone' : 'desktop'}-${dark ? 'dark' : 'light'}.png`,
          fullPage: true,
        });
      }
    }
  }
  expect(found).toEqual([]);
});

test('no page broke its policy or asked another host', () => {
  expect(complaints).toEqual([]);
});
