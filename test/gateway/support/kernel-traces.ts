/** What Sealane may have left behind on a node. */
import type { Netns } from '../../support/netns.ts'
import type { Site } from './netns-sites.ts'

/** Everything that Sealane could have left in the kernel. */
export async function kernelOf(ns: Netns): Promise<string> {
  const dumps = [
    ['ls', '/sys/class/net'],
    ['ip', '-4', '-o', 'address'],
    ['ip', '-4', 'route', 'show', 'table', 'all'],
    ['ip', '-4', 'rule'],
    ['ip', '-6', '-o', 'address', 'show', 'scope', 'global'],
    ['ip', '-6', 'rule'],
    ['nft', 'list', 'ruleset'],
    ['sysctl', 'net.ipv4.ip_forward', 'net.ipv6.conf.all.forwarding'],
  ]
  const texts = await Promise.all(dumps.map(([command = '', ...args]) => ns.exec(command, args)))
  return [...texts, await routes6(ns)].join('\n')
}

/** The IPv6 routes without those that the kernel adds for each device some time after it came up. */
async function routes6(ns: Netns): Promise<string> {
  const text = await ns.exec('ip', ['-6', 'route', 'show', 'table', 'all'])
  return text
    .split('\n')
    .filter((line) => !/\b(?:fe80:|ff00:)/.test(line))
    .join('\n')
}

export async function wireguardProcesses(site: Site): Promise<string[]> {
  const pids = (await site.gateway.exec('ip', ['netns', 'pids', site.gateway.name]))
    .split('\n')
    .filter((pid) => pid !== '')
  const names = await Promise.all(pids.map((pid) => site.gateway.tryExec('cat', [`/proc/${pid}/comm`])))
  return names.map(({ stdout }) => stdout.trim()).filter((name) => name.startsWith('wireguard'))
}
