/** A route with its defaults filled in, and the name that progress is kept by. */
export interface Leg {
  target: string;
  to: string;
  topic: string;
  key: string | null;
  headers: Readonly<Record<string, string>> | undefined;
  exchange: string | undefined;
}
