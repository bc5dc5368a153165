import { BlockList, isIP, type LookupFunction } from 'node:net';

/**
 * IPv4 blocks that are not the public internet: those of IANA's special-purpose registry that are not globally reachable,
 * multicast, reserved, and addresses that only answer inside one cloud provider.
 */
const closedIpv4: readonly [string, number][] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  // The metadata services of AWS, Google, Azure and others, which hand out credentials: 169.254.169.254. Alibaba's,
  // 100.100.100.200, and Oracle's, 192.0.0.192, are in blocks of this list too.
  ['169.254.0.0', 16],
  // Azure's platform address (DNS, health probes, the VM agent): a public block, reachable from within Azure alone.
  ['168.63.129.16', 32],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
];

/**
 * Of IPv6, only these can be public: global unicast, and IPv4 in the forms of a mapped address and of NAT64. So the IPv6
 * addresses of metadata services (fd00:ec2::254, fd20:ce::254) are not.
 */
const openIpv6: readonly [string, number][] = [
  ['2000::', 3],
  ['::ffff:0:0', 96],
  ['64:ff9b::', 96],
];

/** Within global unicast: protocol assignments with Teredo, documentation, 6to4. */
const closedIpv6: readonly [string, number][] = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
];

const closed = new BlockList();
const open = new BlockList();
for (const [address, prefix] of closedIpv4) {
  // Holds for mapped addresses (::ffff:127.0.0.1) as well: BlockList knows that they are IPv4.
  closed.addSubnet(address, prefix, 'ipv4');
  closed.addSubnet(`64:ff9b::${address}`, 96 + prefix, 'ipv6');
}
for (const [address, prefix] of closedIpv6) closed.addSubnet(address, prefix, 'ipv6');
for (const [address, prefix] of openIpv6) open.addSubnet(address, prefix, 'ipv6');

/** Whether an IP address belongs to the public internet. What is no address does not. */
export function isPublicAddress(address: string): boolean {
  // A zone (`fe80::1%eth0`) says through which interface, not where to.
  const bare = address.replace(/%.*$/, '');
  const version = isIP(bare);
  if (version === 4) return !closed.check(bare, 'ipv4');
  return version === 6 && open.check(bare, 'ipv6') && !closed.check(bare, 'ipv6');
}

/** A request would have gone to an address that is not public. */
export class PrivateAddress extends Error {
  override readonly name = 'PrivateAddress';
}

/**
 * Throws for a URL that names a private address itself: `lookup` is not asked about those. The URL parser has already
 * turned `2130706433`, `0x7f.1` and the like into `127.0.0.1`.
 */
export function refusePrivateLiteral(url: URL): void {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  if (isIP(host) !== 0 && !isPublicAddress(host)) throw new PrivateAddress(`${host} is a private address`);
}

/**
 * A lookup that returns public addresses only. The connection is made to what it returns, so a name that resolves
 * differently a moment later (DNS rebinding) gains nothing.
 */
export function publicOnly(lookup: LookupFunction): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, options, (error, address, family) => {
      if (error) return callback(error, address, family);
      const addresses = typeof address === 'string' ? [{ address, family: family ?? isIP(address) }] : address;
      const reachable = addresses.filter((one) => isPublicAddress(one.address));
      const [first] = addresses;
      if (reachable.length === 0 && first !== undefined) {
        return callback(new PrivateAddress(`${hostname} resolves to the private address ${first.address}`), []);
      }
      if (typeof address === 'string') return callback(null, address, family);
      callback(null, reachable);
    });
  };
}
