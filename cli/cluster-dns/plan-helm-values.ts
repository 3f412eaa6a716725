/**
 * Plans for RKE2: its server reinstalls CoreDNS from a Helm chart, so changes of the Corefile would be lost.
 * HelmChartConfig kube-system/rke2-coredns contains the user's values; Sealane's are between two marker comments in it.
 * The chart prints each entry of `extraConfig` at the top of the Corefile as `<name> <parameters>`, which makes an
 * entry a server block. Unlike the list `servers`, this map is merged, so the chart's own block need not be repeated.
 */
import { formatYaml, parseYaml } from '../../kubeapi/kubeapi.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../model/model.ts'
import { refOf, type ObjectRef } from '../../kubeapi/kube/kube.ts'
import {
  type ClusterDnsOptions,
  type ClusterDnsPlan,
  type ClusterDnsProblem,
  type DnsObject,
  NO_CHANGE,
  findObject,
  problemPlan,
} from './dns-change.ts'
import { type ListenOptions, claimsOn, formatForwardBlock, placeOfText } from '../../model/cluster-dns/cluster-dns.ts'
import { findClusterCorefile } from './corefile-source.ts'
import { KNOWN_CACHE_MAPS } from './dns-caches.ts'
import { claimProblem, isProblem, readable } from './plan-corefile.ts'

export const RKE2_CHART_CONFIG: ObjectRef = {
  apiVersion: 'helm.cattle.io/v1',
  kind: 'HelmChartConfig',
  namespace: 'kube-system',
  name: 'rke2-coredns',
}
const BEGIN = '# sealane begin'
const END = '# sealane end'
const MAP = 'extraConfig'
/** Helm reinstalls the chart, which restarts the pods one after the other. */
const EFFECT = { how: 'by itself', withinSeconds: 180 } as const

export function planHelmValues(present: readonly DnsObject[], options: ClusterDnsOptions): ClusterDnsPlan {
  const before = findObject(present, RKE2_CHART_CONFIG)
  const values = valuesOf(before)
  const clean = cutOurs(values)
  const rendered = findClusterCorefile(present)
  if (isProblem(rendered)) return problemPlan(rendered)
  const place = readable(rendered, () => {
    // A block from Sealane's own values is not a claim of another owner.
    const claims = clean === values ? claimsOn(rendered.corefile, options.domain) : []
    return claims.length > 0 ? claimProblem(rendered, options.domain, claims) : placeOfText(rendered.corefile)
  })
  if (isProblem(place)) return problemPlan(place)
  const after = insertOurs(clean, options, place)
  if (after === undefined || !addsOnlyOurs(clean, after)) return unreadable()
  const problems = asksNodeLocal(present, values, options.domain) ? [nodeLocalProblem(options.domain)] : []
  if (after === values) return problemPlan(...problems)
  const why = `the chart's values make CoreDNS forward names below ${options.domain} to ${options.forwardTo}`
  return { ...change(before, after, why), problems }
}

export function planHelmValuesRemoval(present: readonly DnsObject[]): ClusterDnsPlan {
  const before = findObject(present, RKE2_CHART_CONFIG)
  const values = valuesOf(before)
  const after = cutOurs(values)
  if (before === undefined || after === values) return NO_CHANGE
  return change(before, after, 'the values that Sealane added are removed')
}

function change(before: DnsObject | undefined, values: string, why: string): ClusterDnsPlan {
  const base: DnsObject = before ?? {
    apiVersion: RKE2_CHART_CONFIG.apiVersion,
    kind: RKE2_CHART_CONFIG.kind,
    metadata: {
      name: RKE2_CHART_CONFIG.name,
      namespace: 'kube-system',
      labels: { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE },
    },
  }
  const ours = base.metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
  const after = values === '' && ours ? undefined : { ...base, spec: { ...base.spec, valuesContent: values } }
  const edit = {
    field: 'spec.valuesContent',
    before: before === undefined ? undefined : valuesOf(before),
    after: values,
  }
  return { changes: [{ object: refOf(base), before, after, edit, why, effect: EFFECT }], notes: [], problems: [] }
}

function valuesOf(config: DnsObject | undefined): string {
  const values = config?.spec?.['valuesContent']
  return typeof values === 'string' ? values : ''
}

/** Undefined if no lines can be inserted into the values as they are written. */
function insertOurs(values: string, options: ClusterDnsOptions, place: ListenOptions): string | undefined {
  const present = parsed(values)
  if (present === undefined) return undefined
  if (Object.hasOwn(present, MAP)) {
    const line = /^extraConfig:[ \t]*(#.*)?\n(?=( +)\S)/m.exec(values)
    if (line === null) return undefined
    const at = line.index + line[0].length
    return values.slice(0, at) + ourLines(options, place, line[2] ?? '  ').join('\n') + '\n' + values.slice(at)
  }
  const lines = ourLines(options, place, '  ')
  const all = [lines[0], `${MAP}:`, ...lines.slice(1)].join('\n')
  if (values === '') return `${all}\n`
  return values.endsWith('\n') ? `${values}${all}\n` : `${values}\n${all}`
}

function ourLines(options: ClusterDnsOptions, place: ListenOptions, indent: string): string[] {
  const block = formatForwardBlock(options, place).split('\n')
  const keys = (block.find((line) => line.endsWith(' {')) ?? '').slice(0, -2)
  const body = block.slice(block.findIndex((line) => line.endsWith(' {')) + 1, -1)
  // The chart prints this unchanged into an indented text, so every line needs the full indent.
  const parameters = ['{', ...body.map((line) => `    ${line}`)].join('\n')
  const value = formatYaml({ [keys]: { parameters } }).trimEnd()
  return [BEGIN, ...value.split('\n').map((line) => indent + line), END]
}

/** The values without Sealane's lines, otherwise unchanged to the byte. */
function cutOurs(values: string): string {
  const pattern = new RegExp(`(^|\\n)${BEGIN}\\n[^]*?\\n${END}(\\n|$)`)
  return values.replace(pattern, (_all, before: string, after: string) => (after === '\n' ? before : ''))
}

function parsed(values: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value = parseYaml(values) ?? {}
    return typeof value === 'object' && !Array.isArray(value) ? (value as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}

/** True if the parsed values are the same as before, with exactly one additional entry. */
function addsOnlyOurs(before: string, after: string): boolean {
  const old = parsed(before)
  const now = parsed(after)
  if (old === undefined || now === undefined) return false
  const { [MAP]: oldMap, ...oldRest } = old
  const { [MAP]: nowMap, ...nowRest } = now
  const entries = Object.entries((nowMap ?? {}) as Record<string, unknown>)
  const oldEntries = Object.entries((oldMap ?? {}) as Record<string, unknown>)
  const kept = entries.filter(([key]) => oldEntries.some(([old]) => old === key))
  return (
    JSON.stringify(oldRest) === JSON.stringify(nowRest) &&
    JSON.stringify(kept) === JSON.stringify(oldEntries) &&
    entries.length === oldEntries.length + 1
  )
}

/** True if pods use NodeLocal DNSCache and it is not configured for the zone. */
function asksNodeLocal(present: readonly DnsObject[], values: string, domain: string): boolean {
  const { nodelocal } = (parsed(values) ?? {}) as { nodelocal?: { extraClusterDomains?: unknown } | null }
  const reported = nodelocal?.extraClusterDomains
  const isOn = KNOWN_CACHE_MAPS.some((ref) => findObject(present, ref) !== undefined)
  return isOn && !(Array.isArray(reported) && reported.includes(domain))
}

function nodeLocalProblem(domain: string): ClusterDnsProblem {
  return {
    kind: 'cache',
    object: RKE2_CHART_CONFIG,
    message: 'NodeLocal DNSCache is on: pods query it, and its Corefile comes from the chart',
    advice: [
      `Set nodelocal.extraClusterDomains: [${domain}] in the same HelmChartConfig (chart 1.46.003 or newer). Until then, pods get NXDOMAIN for ${domain}.`,
    ],
  }
}

function unreadable(): ClusterDnsPlan {
  return problemPlan({
    kind: 'unreadable',
    object: RKE2_CHART_CONFIG,
    message:
      'HelmChartConfig kube-system/rke2-coredns, spec.valuesContent: expected a YAML mapping in block style, and extraConfig, if there is one, likewise',
    advice: [
      'Write it in block style, or add the block by hand (docs/operations.md, "Cluster DNS"). It was not changed.',
    ],
  })
}
