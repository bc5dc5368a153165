import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { OrderService } from './order-service.ts';
import { readRelayState } from './order-service-evidence.ts';
import type { DemoSchemas } from './order-service-tables.ts';
import type { Crash } from './proof.ts';
import { plural, seconds } from './proof.ts';
import type { FleetMember, RelayFleet } from './relay-fleet.ts';
import type { Scoreboard } from './scoreboard.ts';

export interface CrashScene {
  pool: pg.Pool;
  schemas: DemoSchemas;
  service: OrderService;
  fleet: RelayFleet;
  board: Scoreboard;
  signal: AbortSignal;
}

/** The relay is killed during an import, so that it has claimed many events. */
const importedOrders = 60;
const claimedMin = 10;
const pollMs = 5;
/** Within this a claim that the database has received is completed. */
const claimEndsMs = 20;
const claimedTimeoutMs = 2_000;
const takeoverTimeoutMs = 15_000;
const messageTimeoutMs = 1_000;

/** Kills the busiest relay during an import and waits until the other relay has taken over its events. */
export async function killOneRelay(scene: CrashScene): Promise<Crash> {
  const { pool, schemas, service, fleet, board, signal } = scene;
  await service.importOrders(importedOrders);
  board.addMilestone(`${plural(importedOrders, 'order')} imported in one transaction`);
  const victim = await busiestRelay(scene);
  fleet.kill(victim);
  const killedAt = performance.now();
  const { held, at } = await stateOfKilled(scene, victim);
  const outage = { from: at, to: 'infinity' };
  const crash: Crash = { relay: victim.name, pid: victim.pid, held, takenOver: 0, takeoverMs: undefined, outage };
  board.addMilestone(`${victim.name} killed with SIGKILL while it had claimed ${plural(held, 'event')}`, 'bad');

  while (performance.now() - killedAt < takeoverTimeoutMs) {
    const now = await readRelayState(pool, schemas, victim.token);
    if (now.lost && now.held === 0) {
      crash.takeoverMs = performance.now() - killedAt;
      outage.to = now.at;
      const successor = await relayThatTookOver(fleet, signal);
      crash.takenOver = successor?.takenOver ?? 0;
      const took = `took over ${plural(crash.takenOver, 'event')} after ${seconds(crash.takeoverMs)}`;
      board.addMilestone(`${successor?.name ?? 'no relay'} ${took}`, 'good');
      return crash;
    }
    await sleep(pollMs, undefined, { signal });
  }
  board.addMilestone(`no relay took over from ${victim.name}`, 'bad');
  return crash;
}

/** How many events a killed relay has claimed, and when it was killed. The database still completes a claim that it has received. */
async function stateOfKilled({ pool, schemas, signal }: CrashScene, victim: FleetMember) {
  const first = await readRelayState(pool, schemas, victim.token);
  let held = first.held;
  for (let before = -1; held > before; { held } = await readRelayState(pool, schemas, victim.token)) {
    before = held;
    await sleep(claimEndsMs, undefined, { signal });
  }
  return { held, at: first.at };
}

/** The database shows a takeover a little earlier than the message of the relay arrives here. */
async function relayThatTookOver(fleet: RelayFleet, signal: AbortSignal): Promise<FleetMember | undefined> {
  const alive = () => fleet.members.filter(({ state }) => state === 'delivering');
  const startedAt = performance.now();
  while (performance.now() - startedAt < messageTimeoutMs) {
    await sleep(50, undefined, { signal });
    const successor = alive().find(({ takenOver }) => takenOver > 0);
    if (successor) return successor;
  }
  return alive()[0];
}

async function busiestRelay({ pool, schemas, fleet, signal }: CrashScene): Promise<FleetMember> {
  const startedAt = performance.now();
  for (;;) {
    let busiest: { member: FleetMember; held: number } | undefined;
    for (const member of fleet.members) {
      const { held } = await readRelayState(pool, schemas, member.token);
      if (busiest === undefined || held > busiest.held) busiest = { member, held };
    }
    if (busiest === undefined) throw new Error('There is no relay to kill.');
    if (busiest.held >= claimedMin || performance.now() - startedAt > claimedTimeoutMs) return busiest.member;
    await sleep(pollMs, undefined, { signal });
  }
}
