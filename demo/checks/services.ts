/** Calls by name: spread over the clusters, headless records, and who the server sees. */
import { podAddress } from '../topology.ts'
import { type Check, DB, WEB, ZONE, digShort, expectEqual, fetchPage, globalAddresses, siteRow } from './world.ts'

const CALLS = 40

/** Chance that one of three servers is never picked in 40 calls: 3 × (2/3)^40, one in three million. */
const callsAreSpread: Check = {
  name: 'tokyo calls web and is answered by milano and paris',
  async run(world) {
    const seen = new Map<string, number>()
    for (let i = 0; i < CALLS; i += 1) {
      const page = await fetchPage(world, 'tokyo-client-1', `http://${WEB}/`)
      seen.set(page, (seen.get(page) ?? 0) + 1)
    }
    expectEqual('servers that answered', [...seen.keys()].sort(), ['milano/web-0', 'milano/web-1', 'paris/web-0'])
    return `${CALLS} calls: ${[...seen]
      .sort()
      .map(([who, count]) => `${who} ${count}`)
      .join(', ')}`
  },
}

/** The exporting clusters import as well, their own endpoints included. */
const exportersCall: Check = {
  name: 'paris calls web and is answered by milano too',
  async run(world) {
    const seen = new Set<string>()
    for (let i = 0; i < CALLS; i += 1) seen.add(await fetchPage(world, 'paris-client-0', `http://${WEB}/`))
    expectEqual('servers that answered', [...seen].sort(), ['milano/web-0', 'milano/web-1', 'paris/web-0'])
    return [...seen].sort().join(', ')
  },
}

const headlessRecords: Check = {
  name: 'headless db: A, SRV and one name per pod',
  async run(world) {
    const pods = [
      ['milano', 'db-0'],
      ['milano', 'db-1'],
      ['paris', 'db-0'],
    ] as const
    const addressOf = await globalAddresses(world)
    const addresses = pods.map(([site, pod]) => addressOf(site, pod))
    expectEqual(`A ${DB}`, await digShort(world, 'tokyo-client-1', 'A', DB), [...addresses].sort())
    for (const [index, [site, pod]] of pods.entries()) {
      const name = `${pod}.${site}.${DB}`
      expectEqual(`A ${name}`, await digShort(world, 'tokyo-client-1', 'A', name), [addresses[index]])
    }
    const targets = pods.map(([site, pod]) => `5432 ${pod}.${site}.${DB}.`)
    const records = await digShort(world, 'tokyo-client-1', 'SRV', `_pg._tcp.${DB}`)
    expectEqual('SRV targets', records.map((line) => line.split(' ').slice(2).join(' ')).sort(), [...targets].sort())
    expectEqual('AAAA', await digShort(world, 'tokyo-client-1', 'AAAA', DB), [])
    const hosts = await world.lab.must('tokyo-client-1', 'getent', ['ahostsv4', `db-0.paris.${DB}`])
    return `${addresses.join(', ')}; getent says ${hosts.split(/\s/)[0] ?? ''}`
  },
}

const callerIsSeen: Check = {
  name: "servers see each caller's own address, the same everywhere",
  async run(world) {
    const seen: string[] = []
    const addressOf = await globalAddresses(world)
    for (const client of ['client-0', 'client-1']) {
      const want = addressOf('tokyo', client)
      const own = podAddress(siteRow(world, 'tokyo'), client)
      if (world.flat) expectEqual('address without overlap', want, own)
      else if (want === own) throw new Error(`tokyo's ${client} has no global address`)
      for (const server of [`db-0.milano.${DB}`, `db-1.milano.${DB}`, `db-0.paris.${DB}`]) {
        const url = `http://${server}:5432/cgi-bin/whoami`
        expectEqual(`${client} as ${server} sees it`, await fetchPage(world, `tokyo-${client}`, url), want)
      }
      const behindVip = await fetchPage(world, `tokyo-${client}`, `http://${WEB}/cgi-bin/whoami`)
      expectEqual(`${client} through the clusterset IP`, behindVip, want)
      seen.push(`${own} is ${want}`)
    }
    return seen.join(', ')
  },
}

/** DNS answers are true (KEP-1645 specification.md; RFC 2308 section 2.1). */
const unknownNames: Check = {
  name: 'dns: unknown is NXDOMAIN, the version is published',
  async run(world) {
    const text = await digShort(world, 'tokyo-client-1', 'TXT', 'dns-version.clusterset.local')
    expectEqual('TXT dns-version', text, ['"1.0.0"'])
    const answer = await world.lab.must('tokyo-client-1', 'dig', ['+tcp', 'A', `nothing.shop.${ZONE}`])
    if (!answer.includes('status: NXDOMAIN')) throw new Error(`unknown name over TCP: ${answer}`)
    return 'over UDP and TCP'
  },
}

export const serviceChecks: readonly Check[] = [
  callsAreSpread,
  exportersCall,
  headlessRecords,
  callerIsSeen,
  unknownNames,
]
