/** Probes a site without Kubernetes from the machine on which the command runs. */
import type { Area, Fact, ResolverReport } from '../../../explain/facts/facts.ts'
import type { ClusterApi } from '../../../kubeapi/kubeapi.ts'
import type { SiteConfig } from '../../../kubeapi/files/files.ts'
import {
  type AddressPort,
  formatAddress,
  formatAddressPort,
  parseAddressPort,
} from '../../../model/addresses/addresses.ts'
import { CLUSTERSET_ZONE, type Node } from '../../../model/model.ts'
import { identityFolder, probeBroker } from './broker-probe.ts'
import { RESOLV_CONF, probeDns, readResolvConf } from './dns-probe.ts'
import { probeHost } from './host-probe.ts'
import { type Progress, isWanted } from './progress.ts'

export interface SiteProbesInit {
  readonly config: SiteConfig
  /** Undefined for all areas. */
  readonly area: Area | undefined
  readonly progress: Progress
  readonly signal: AbortSignal
}

const DNS_PORT = 53
const ADDRESSES_MS = 2000

/** Runs all probes at once, each with its own time limit. */
export async function siteProbes(api: ClusterApi, init: SiteProbesInit): Promise<readonly Fact[]> {
  const { config, area, progress, signal } = init
  const nodes = (): readonly Node[] => api.cache('Node').list()
  const found = await Promise.all([
    ...(isWanted('host', area)
      ? [progress.follow('this machine', probeHost({ nodes, folders: [config.state] }, signal))]
      : []),
    ...(isWanted('dns', area) ? [dnsProbes(config, progress, signal)] : []),
    ...(isWanted('broker', area) ? [probeBroker(identityFolder(config.identity), progress, signal)] : []),
  ])
  return found.flat()
}

/** Queries the site's own servers on this machine and their upstream servers. */
async function dnsProbes({ dns, file }: SiteConfig, progress: Progress, signal: AbortSignal): Promise<readonly Fact[]> {
  if (dns.listen.length + dns.upstreams.length === 0) return []
  const { ownAddresses } = await import('../../../compose/look.ts')
  const here = new Set(await ownAddresses(ADDRESSES_MS, signal))
  const at = new Date().toISOString()
  const own = dns.listen.flatMap((listen) => heardHere(listen, here))
  const settings = { listen: dns.listen.map(serverText), upstreams: dns.upstreams.map(serverText) }
  const questions = [
    ...own.map((server) => ({ server, role: 'ours' as const, name: CLUSTERSET_ZONE })),
    ...settings.upstreams.map((server) => ({ server, role: 'upstream' as const, name: '.' })),
  ]
  const asked = questions.map((question) => progress.follow(`DNS ${question.server}`, probeDns(question, signal)))
  const resolver = machineResolver((await readResolvConf()) ?? '', dns.listen, here)
  return [
    { t: 'probe', kind: 'settings', source: file, at, items: [settings] },
    ...(resolver === undefined
      ? []
      : [{ t: 'probe', kind: 'resolver', source: RESOLV_CONF, at, items: [resolver] } as const]),
    ...(await Promise.all(asked)).flat(),
  ]
}

/**
 * The resolver of this machine, given its resolv.conf. Undefined unless one of its name servers is a server of the site:
 * how other machines resolve names is none of Sealane's business. `here` are the addresses of this machine.
 */
export function machineResolver(
  text: string,
  listen: readonly string[],
  here: ReadonlySet<string>,
): ResolverReport | undefined {
  const servers = [...text.matchAll(/^\s*nameserver\s+([0-9a-fA-F.:]+)/gm)].map(([, server = '']) => server)
  const asks = (server: string): boolean =>
    listen.some((one) => {
      const { address, port } = placeOf(one)
      const own = formatAddress(address)
      const isHere = here.has(server) || server.startsWith('127.') || server === '::1'
      // Resolvers ask port 53 only.
      return port === DNS_PORT && (own === server || (ANY.has(own) && isHere))
    })
  return servers.some(asks) ? { place: 'machine', name: RESOLV_CONF, text } : undefined
}

const ANY: ReadonlySet<string> = new Set(['0.0.0.0', '::'])

/** The address at which this machine can query a listening server. Empty for a server that listens on another node. */
function heardHere(listen: string, here: ReadonlySet<string>): readonly string[] {
  const { address, port } = placeOf(listen)
  const text = formatAddress(address)
  if (text === '0.0.0.0') return [`127.0.0.1:${port}`]
  if (text === '::') return [`[::1]:${port}`]
  return here.has(text) ? [formatAddressPort({ address, port })] : []
}

function serverText(text: string): string {
  return formatAddressPort(placeOf(text))
}

function placeOf(text: string): AddressPort {
  return parseAddressPort(text, 'spec.dns', { defaultPort: DNS_PORT })
}
