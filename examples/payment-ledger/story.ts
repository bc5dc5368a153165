import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { createOutbox, fromPg } from 'postcommit';
import type { Merchant } from './merchant.ts';
import type { Payment } from './payment-service.ts';
import { agrees, type ReconciledAccount, reconcile } from './reconcile.ts';
import type { ServiceProcesses } from './service-processes.ts';

const paymentCount = 400;
/** Every seventh payment is refunded. */
const refundEvery = 7;
const accountCount = 10;
const clientCount = 8;
/** Between two requests of one client. */
const pauseMs = 20;
const waitMsMax = 60_000;

/** Everything the story works with. */
export interface Stage {
  paymentUrl: string;
  payments: pg.Pool;
  accounts: pg.Pool;
  merchant: Merchant;
  services: ServiceProcesses;
}

/** Payments and refunds, while each service is killed twice. Returns whether all agree to the cent. */
export async function tellStory(stage: Stage): Promise<boolean> {
  const { paymentUrl, accounts, merchant, services } = stage;
  const orders: Payment[] = Array.from({ length: paymentCount }, (_, n) => ({
    id: randomUUID(),
    accountId: `account-${n % accountCount}`,
    amountCents: 1 + ((n * 7_919) % 99_999),
  }));
  const todo = [...orders.entries()];
  let done = 0;
  const client = async () => {
    for (let next = todo.shift(); next !== undefined; next = todo.shift()) {
      const [n, payment] = next;
      await send(`${paymentUrl}/payments`, payment);
      if (n % refundEvery === 0) await send(`${paymentUrl}/payments/${payment.id}/refund`);
      done++;
      await sleep(pauseMs);
    }
  };
  const clients = Promise.all(Array.from({ length: clientCount }, client));

  const booked = async () => {
    const { rows } = await accounts.query('select coalesce(sum(bookings), 0)::integer as count from accounts');
    return rows[0].count as number;
  };
  for (const share of [0.25, 0.6]) {
    await waitFor(`${share} of the payments are made`, async () => done >= share * paymentCount);
    await services.crash('payments');
    say(`SIGKILL for payments after ${done} of ${paymentCount} payments; it is started again`);
    const before = await booked();
    await waitFor('the account service books', async () => (await booked()) >= before + 25);
    await services.crash('accounts');
    say(`SIGKILL for accounts after ${await booked()} bookings; it is started again`);
  }
  await clients;
  const status = await send(`${paymentUrl}/payments`, {
    id: randomUUID(),
    accountId: 'account-0',
    amountCents: 100_001,
  });
  say(`a payment over the limit was answered with ${status} and rolled back`);

  const entries = paymentCount + Math.ceil(paymentCount / refundEvery);
  await waitFor('every payment is booked', async () => (await booked()) >= entries);
  await redeliver(stage);
  await waitFor('the merchant has every notice', async () => merchant.notices.size >= entries);
  return sumUp(stage, entries);
}

/** Everything about one account is published again, as after an operator's replay, and changes nothing. */
async function redeliver({ payments, accounts }: Stage): Promise<void> {
  const repeated = async () => (await accounts.query('select from repeated_deliveries')).rowCount ?? 0;
  const before = await repeated();
  const { admin } = createOutbox({ db: fromPg<pg.PoolClient>(payments) });
  const { count } = await admin.replay({ aggregate: ['account', 'account-0'] });
  await waitFor('the replayed events are skipped', async () => (await repeated()) >= before + count);
  say(`${before} deliveries were repeated by crashes, and ${count} by a replay: all of them were skipped`);
}

async function sumUp({ payments, accounts, merchant }: Stage, entries: number): Promise<boolean> {
  const reconciled = await reconcile(payments, accounts, merchant);
  const total = (of: (account: ReconciledAccount) => number) => reconciled.reduce((sum, each) => sum + of(each), 0);
  console.log(`ledger   ${euros(total((each) => each.ledgerCents))} in ${total((each) => each.ledgerEntries)} entries`);
  console.log(`accounts ${euros(total((each) => each.balanceCents))} in ${total((each) => each.bookings)} bookings`);
  console.log(`merchant ${euros(total((each) => each.noticedCents))} in ${total((each) => each.notices)} notices`);
  const wrong = reconciled.filter((account) => !agrees(account));
  const ok =
    wrong.length === 0 && reconciled.length === accountCount && total((each) => each.ledgerEntries) === entries;
  console.log(
    ok
      ? `ok       ledger, accounts and merchant agree to the cent for each of ${accountCount} accounts`
      : `failed   ${JSON.stringify(wrong)}`,
  );
  return ok;
}

/** Repeats the request while the service is down. It has an id, so a repetition changes nothing. Returns the status. */
async function send(url: string, body?: object): Promise<number> {
  const deadline = performance.now() + waitMsMax;
  for (;;) {
    const status = await fetch(url, { method: 'POST', ...(body && { body: JSON.stringify(body) }) }).then(
      (response) => response.status,
      () => undefined,
    );
    if (status === 200 || status === 422) return status;
    if (performance.now() > deadline) throw new Error(`POST ${url} was answered with ${status ?? 'nothing'}.`);
    await sleep(50);
  }
}

async function waitFor(what: string, condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + waitMsMax;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`Waited ${waitMsMax} ms until ${what}.`);
    await sleep(50);
  }
}

function euros(cents: number): string {
  return `${Math.floor(cents / 100)}.${String(cents % 100).padStart(2, '0')} EUR`;
}

function say(line: string): void {
  console.log(`story    ${line}`);
}
