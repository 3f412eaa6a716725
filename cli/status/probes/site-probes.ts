/** Probes a site without Kubernetes from the machine on which the command runs. */
import type { Area, Fact } from '../../../explain/facts/facts.ts'
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
import { probeDns } from './dns-probe.ts'
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
  return [{ t: 'probe', kind: 'settings', source: file, at, items: [settings] }, ...(await Promise.all(asked)).flat()]
}

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
