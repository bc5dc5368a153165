import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { OrderService } from './order-service.ts';
import { lookAtRelay } from './order-service-evidence.ts';
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

/** A crash is worth watching when the relay has its hands full, so it comes in the middle of an import. */
const importedOrders = 60;
const handsFull = 10;
const lookEveryMs = 5;
const handsFullWithinMs = 2_000;
const takeoverWithinMs = 15_000;
const wordWithinMs = 1_000;

/** Kills the busiest relay in the middle of an import and waits until the other one has taken over what it held. */
export async function killOneRelay(scene: CrashScene): Promise<Crash> {
  const { pool, schemas, service, fleet, board, signal } = scene;
  await service.importOrders(importedOrders);
  board.tell(`${plural(importedOrders, 'order')} imported in one transaction`);
  const victim = await busiestRelay(scene);
  fleet.kill(victim);
  const killedAt = performance.now();
  const { held, at } = await lookAtRelay(pool, schemas, victim.token);
  const outage = { from: at, to: 'infinity' };
  const crash: Crash = { relay: victim.name, pid: victim.pid, held, takenOver: 0, takeoverMs: undefined, outage };
  board.tell(`${victim.name} killed with SIGKILL, ${plural(held, 'event')} in its hands`, 'bad');

  while (performance.now() - killedAt < takeoverWithinMs) {
    const now = await lookAtRelay(pool, schemas, victim.token);
    if (now.lost && now.held === 0) {
      crash.takeoverMs = performance.now() - killedAt;
      outage.to = now.at;
      const heir = await relayThatTookOver(fleet, signal);
      crash.takenOver = heir?.tookOver ?? 0;
      const took = `took over ${plural(crash.takenOver, 'event')} after ${seconds(crash.takeoverMs)}`;
      board.tell(`${heir?.name ?? 'nobody'} ${took}`, 'good');
      return crash;
    }
    await sleep(lookEveryMs, undefined, { signal });
  }
  board.tell(`nobody took over from ${victim.name}`, 'bad');
  return crash;
}

/** The database knows of a takeover a little earlier than the relay's own word of it arrives here. */
async function relayThatTookOver(fleet: RelayFleet, signal: AbortSignal): Promise<FleetMember | undefined> {
  const alive = () => fleet.members.filter(({ state }) => state === 'delivering');
  const startedAt = performance.now();
  while (performance.now() - startedAt < wordWithinMs) {
    await sleep(50, undefined, { signal });
    const heir = alive().find(({ tookOver }) => tookOver > 0);
    if (heir) return heir;
  }
  return alive()[0];
}

async function busiestRelay({ pool, schemas, fleet, signal }: CrashScene): Promise<FleetMember> {
  const startedAt = performance.now();
  for (;;) {
    let busiest: { member: FleetMember; held: number } | undefined;
    for (const member of fleet.members) {
      const { held } = await lookAtRelay(pool, schemas, member.token);
      if (busiest === undefined || held > busiest.held) busiest = { member, held };
    }
    if (busiest === undefined) throw new Error('There is no relay to kill.');
    if (busiest.held >= handsFull || performance.now() - startedAt > handsFullWithinMs) return busiest.member;
    await sleep(lookEveryMs, undefined, { signal });
  }
}
