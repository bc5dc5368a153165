import { userInfo } from 'node:os';

/** The name on this host. A container may run as a user without a name. */
export function userName(): string | undefined {
  try {
    return userInfo().username;
  } catch {
    return undefined;
  }
}
