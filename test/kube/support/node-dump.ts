/** What Sealane could leave in a node's kernel and files, as text. */
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { KubeNode } from './node.ts'

/** Tables that kube-proxy writes as Services come and go. */
const KUBE_PROXY = /^table (ip|ip6|inet) (kube-proxy|nat|filter|mangle)\b/

/**
 * Rules, routes, devices and switches of a node's namespace. Without what belongs to pods, which come and go, and
 * without what kube-proxy writes.
 */
export function dumpNode({ netns }: Pick<KubeNode, 'netns'>): string {
  const inside = (...argv: string[]): string =>
    execFileSync('ip', ['netns', 'exec', netns, ...argv], { encoding: 'utf8' })
  return [
    ...tables(inside('nft', '--stateless', 'list', 'ruleset')),
    inside('ip', '-4', 'rule'),
    inside('ip', '-6', 'rule'),
    withoutPods(inside('ip', '-4', 'route', 'show', 'table', 'all')),
    withoutPods(inside('ip', '-6', 'route', 'show', 'table', 'all')),
    withoutPods(inside('ip', '-o', 'link')),
    inside('sysctl', '-a', '--pattern', String.raw`^net\.ipv[46]\.(ip_forward|conf\.(all|default|eth0)\.)`),
  ].join('\n')
}

/** Files below /var/lib/sealane of a node, in the folder that the test gave its cluster. */
export function sealaneFiles(directory: string, node: string): readonly string[] {
  const folder = join(directory, `test-kubelet-${node}`, 'hostpath', node, 'var/lib/sealane')
  if (!existsSync(folder)) return []
  const all = readdirSync(folder, { recursive: true, encoding: 'utf8', withFileTypes: true })
  return all
    .filter((entry) => entry.isFile())
    .map(({ name }) => name)
    .sort()
}

function tables(ruleset: string): string[] {
  return ruleset.split(/^(?=table )/m).filter((table) => !KUBE_PROXY.test(table))
}

/**
 * Without pods the bridge has no carrier: its flags change, its link-local routes go, its other routes are linkdown.
 */
const BRIDGE = /\bcni0\b/
const POD = /\bpod[0-9a-f]{8}\b/

function withoutPods(text: string): string {
  return text
    .split('\n')
    .filter((line) => !POD.test(line) && !(BRIDGE.test(line) && /fe80|link\/ether/.test(line)))
    .map((line) => line.replace(/^\d+: /, '').replace(/ linkdown\b/, ''))
    .join('\n')
}
