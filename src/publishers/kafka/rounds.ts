import type { Parcel, Place } from './delivery.ts';

/**
 * Divides parcels into rounds that are sent one after the other. In a round no partition gets more bytes than its limit,
 * and all records of a key go to one partition, so that a failure cannot be passed by what is behind it.
 */
export function planRounds(parcels: readonly Parcel[], bytesMax: (topic: string) => number): (readonly Parcel[])[] {
  if (fitsInOne(parcels, bytesMax)) return [parcels];
  const rounds: Parcel[][] = [];
  const places = new Map<Place, { round: number; bytes: number }>();
  const keys = new Map<string, { round: number; place: Place }>();
  for (const parcel of parcels) {
    const { key, topic } = parcel.record;
    const place = places.get(parcel.place) ?? { round: 0, bytes: 0 };
    const before = key === null ? undefined : keys.get(key);
    const earliest = before === undefined ? 0 : before.place === parcel.place ? before.round : before.round + 1;
    const isFull = place.bytes > 0 && place.bytes + parcel.bytes > bytesMax(topic);
    const round = Math.max(earliest, isFull ? place.round + 1 : place.round);
    const bytes = round === place.round ? place.bytes + parcel.bytes : parcel.bytes;
    places.set(parcel.place, { round, bytes });
    if (key !== null) keys.set(key, { round, place: parcel.place });
    const planned = rounds[round];
    if (planned) planned.push(parcel);
    else rounds[round] = [parcel];
  }
  return rounds;
}

/** Most batches have one topic, so that a key has one partition, and are far from any limit. */
function fitsInOne(parcels: readonly Parcel[], bytesMax: (topic: string) => number): boolean {
  const [first] = parcels;
  if (first === undefined) return true;
  const { topic } = first.place;
  let bytes = 0;
  for (const parcel of parcels) {
    if (parcel.place.topic !== topic) return false;
    bytes += parcel.bytes;
  }
  if (bytes <= bytesMax(topic)) return true;
  const byPlace = new Map<Place, number>();
  for (const { place, bytes } of parcels) byPlace.set(place, (byPlace.get(place) ?? 0) + bytes);
  return Math.max(...byPlace.values()) <= bytesMax(topic);
}
