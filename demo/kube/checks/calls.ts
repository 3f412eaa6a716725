/** Lanes, calls by name, what DNS says, and what the API of each cluster shows. */
import type { Cluster } from '../../../model/objects.ts'
import type { KubeObject } from '../../../test/kube/support/kube-request.ts'
import type { ImportObject } from '../../../test/kube/support/service-imports.ts'
import { expectEqual } from '../../checks/world.ts'
import { until } from '../../until.ts'
import type { Check, Member, World } from '../member.ts'
import { CALLERS, NAMESPACE, ZONE, exportsOf, inPod } from '../shop.ts'
import {
  connectionText,
  digShort,
  digStatus,
  everybodyCallsEverybody,
  fetchPages,
  ownHost,
  untilStatus,
  wantedText,
} from './ask.ts'

const OURS = '/apis/sealane.io/v1alpha1'
const MCS = `/apis/multicluster.x-k8s.io/v1beta1/namespaces/${NAMESPACE}`
const CALLS = 30

function othersThan({ members }: World, member: Member): readonly Member[] {
  return members.filter((other) => other !== member)
}

const lanesAreUp: Check = {
  name: 'each cluster reports that its links to the others are up, of each gateway with each',
  async run(world) {
    const said = await Promise.all(
      world.members.map(async (member) => {
        const want = await wantedText(member, othersThan(world, member))
        const got = await connectionText(world, member.name)
        if (got !== want) throw new Error(`${member.name} reports "${got}", want "${want}"`)
        return `${member.name}: ${got}`
      }),
    )
    return said.join('; ')
  },
}

const matrix: Check = {
  name: 'each cluster calls a Service of each by its clusterset name',
  run: ({ members }) => everybodyCallsEverybody(members),
}

/** Chance that one of six pods is never picked in 90 calls: 6 × (5/6)^90, one in two million. */
const callsAreSpread: Check = {
  name: 'web of all three: calls are spread over their pods',
  async run({ members }) {
    const seen = new Map<string, number>()
    for (const from of members) {
      const pages = await fetchPages(from, Array<string>(CALLS).fill(`web.${ZONE}`))
      const pods = new Set<string>()
      for (const page of pages) {
        if (typeof page === 'string') throw new Error(`a call from ${from.name} had no answer: ${page}`)
        seen.set(page.cluster, (seen.get(page.cluster) ?? 0) + 1)
        pods.add(`${page.cluster}/${page.pod}`)
      }
      if (pods.size < 4) throw new Error(`${from.name} was answered by ${[...pods].join(', ')} only`)
    }
    expectEqual('clusters that answered', [...seen.keys()].sort(), members.map(({ name }) => name).sort())
    return `${CALLS * members.length} calls: ${[...seen]
      .sort()
      .map(([name, count]) => `${name} ${count}`)
      .join(', ')}`
  },
}

const importsAreListed: Check = {
  name: 'each API server lists the same ServiceImports',
  async run({ members }) {
    const wanted = [...new Set(members.flatMap(({ name }) => exportsOf(name)))].sort()
    const lists = await Promise.all(
      members.map(async ({ api, name }) => {
        const items = await api.list<ImportObject>(`${MCS}/serviceimports`)
        expectEqual(`ServiceImports in ${name}`, items.map(({ metadata }) => metadata.name).sort(), wanted)
        return items.map(({ metadata, spec, status }) => {
          const from = (status?.clusters ?? []).map(({ cluster }) => cluster).sort()
          return `${metadata.name} ${spec.type} ${spec.ips?.join(',') ?? '-'} ${from.join(',')}`
        })
      }),
    )
    const [first = [], ...others] = lists.map((lines) => [...lines].sort())
    for (const other of others) expectEqual('ServiceImports', other, first)
    return first.map((line) => line.split(' ').slice(0, 3).join(' ')).join('; ')
  },
}

interface PodObject extends KubeObject {
  readonly status: { readonly podIP?: string }
}

/** The address under which all others know a pod; its own where nothing is translated. */
async function addressSeen(member: Member, pod: string): Promise<{ readonly own: string; readonly seen: string }> {
  const { status } = await member.api.get<PodObject>(`/api/v1/namespaces/${NAMESPACE}/pods/${pod}`)
  const { spec } = await member.api.get<Cluster & KubeObject>(`${OURS}/clusters/${member.name}`)
  const own = status.podIP ?? ''
  const [network = ''] = spec.globalCIDRs
  return { own, seen: network === '' ? own : [...network.split('.').slice(0, 2), ...own.split('.').slice(2)].join('.') }
}

const callersAreSeen: Check = {
  name: "servers see each caller's own address, the same everywhere",
  async run({ members, flat }) {
    const lines: string[] = []
    for (const from of members) {
      const others = members.filter((member) => member !== from)
      for (const pod of CALLERS) {
        const { own, seen } = await addressSeen(from, pod)
        if (flat !== (own === seen)) throw new Error(`${pod} of ${from.name}: ${own} is known as ${seen}`)
        const hosts = others.flatMap(({ name }) => [ownHost(name), `db-0.${name}.db.${ZONE}`])
        const pages = await fetchPages(from, hosts, pod)
        for (const [i, host] of hosts.entries()) {
          const page = pages[i]
          expectEqual(`${pod} of ${from.name} at ${host}`, typeof page === 'object' ? page.caller : page, seen)
        }
        lines.push(flat ? `${from.name}/${pod} ${own}` : `${from.name}/${pod} ${own} is ${seen}`)
      }
    }
    if (new Set(lines.map((line) => line.split(' ').at(-1))).size !== lines.length) {
      throw new Error(`two callers have one address: ${lines.join(', ')}`)
    }
    return lines.join(', ')
  },
}

const headless: Check = {
  name: 'headless db: a record for each pod, SRV, a name for each pod',
  async run({ members }) {
    const addresses = await Promise.all(members.map(async (member) => addressSeen(member, 'db-0')))
    const hosts = members.map(({ name }) => `db-0.${name}.db.${ZONE}`)
    for (const from of members) {
      const own = members.indexOf(from)
      // Its own pods are known to a cluster by their own addresses.
      const want = addresses.map(({ own: local, seen }, i) => (i === own ? [local, seen] : [seen]))
      const records = await digShort(from, 'A', `db.${ZONE}`)
      expectEqual(`addresses of db in ${from.name}`, records.length, members.length)
      const known = new Set(want.flat())
      for (const record of records) if (!known.has(record)) throw new Error(`${from.name}: db is also ${record}`)
      const targets = await digShort(from, 'SRV', `_http._tcp.db.${ZONE}`)
      expectEqual(`SRV in ${from.name}`, targets.map((line) => line.split(' ').slice(2).join(' ')).sort(), [
        ...hosts.map((host) => `80 ${host}.`).sort(),
      ])
      const pages = await fetchPages(from, hosts)
      expectEqual(
        `who answers ${from.name} by those names`,
        pages.map((page) => (typeof page === 'object' ? `${page.cluster}/${page.pod}` : page)),
        members.map(({ name }) => `${name}/db-0`),
      )
    }
    return addresses.map(({ seen }) => seen).join(', ')
  },
}

const namesAreRight: Check = {
  name: 'cluster DNS: unknown is NXDOMAIN, cluster.local still works',
  async run({ members }) {
    const found: string[] = []
    for (const member of members) {
      expectEqual(`nothing.${ZONE} in ${member.name}`, await digStatus(member, `nothing.${ZONE}`), 'NXDOMAIN')
      expectEqual(
        `kubernetes in ${member.name}`,
        await digStatus(member, 'kubernetes.default.svc.cluster.local'),
        'NOERROR',
      )
      const hosts = await inPod(member, 'request', `getent ahostsv4 web.${ZONE}`)
      const [address = ''] = hosts.split(/\s/)
      expectEqual(`web in ${member.name}`, [address], await digShort(member, 'A', `web.${ZONE}`))
      found.push(address)
    }
    expectEqual('addresses of web in all clusters', new Set(found).size, 1)
    return `web is ${found[0] ?? ''} in all three`
  },
}

/** Waits until all that is exported is known everywhere. */
export async function servicesAreKnown({ members }: World): Promise<void> {
  const names = [...members.map(({ name }) => ownHost(name)), ...members.map(({ name }) => `db-0.${name}.db.${ZONE}`)]
  for (const name of names) await untilStatus(members, name, 'NOERROR', 60_000)
  await until('each cluster to call each', 60_000, async () => {
    return await everybodyCallsEverybody(members).then(
      () => true,
      (error: unknown) => (error as Error).message,
    )
  })
}

export const callChecks: readonly Check[] = [
  lanesAreUp,
  matrix,
  callsAreSpread,
  importsAreListed,
  callersAreSeen,
  headless,
  namesAreRight,
]
