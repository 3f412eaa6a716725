/** Describes a discovery for people: the findings and their sources. Lines have no line ends. */
import type { Advice } from './advice/advice-row.ts'
import type { Finding } from './evidence.ts'
import type { Discovery } from './discover.ts'
import { printable, printableText } from './snapshot.ts'

interface Line {
  readonly what: string
  readonly value: string
  readonly how: string
}

const NAMES: Readonly<Record<string, string>> = {
  openshift: 'OpenShift',
  gke: 'GKE',
  eks: 'EKS',
  aks: 'AKS',
  rke2: 'RKE2',
}

/** Three columns with the findings first, then problems, warnings and open questions, one line each. */
export function describeDiscovery(discovery: Discovery): string[] {
  const lines = [...identity(discovery), ...network(discovery), ...services(discovery), ...gateways(discovery)]
  const widths = [width(lines.map((line) => line.what)), width(lines.map((line) => line.value))]
  return [
    ...lines.map(({ what, value, how }) =>
      `${what.padEnd(widths[0] ?? 0)}  ${value.padEnd(widths[1] ?? 0)}  ${how}`.trimEnd(),
    ),
    ...discovery.obstacles.map((text) => `problem: ${text}`),
    ...discovery.warnings.map((text) => `warning: ${text}`),
    ...discovery.asks.map(({ field, why, suggestion }) => {
      const offer = suggestion.length === 0 ? '' : `; suggestion: ${suggestion.join(', ')}`
      return printableText(`needed: ${field}: ${why}${offer}`)
    }),
  ].map((text) => text.replaceAll('\n', '?'))
}

/** The advice, the most urgent first. Advice that needs no action is left out unless `all` is true. */
export function describeAdvice(given: readonly Advice[], options: { readonly all?: boolean } = {}): string[] {
  return given
    .filter((one) => options.all === true || one.kind !== 'nothing')
    .flatMap(({ kind, about, text, commands }) => [
      `${HEADS[kind]}: ${about}: ${printableText(text)}`,
      ...commands.map((command) => `    ${command}`),
    ])
}

const HEADS: Readonly<Record<Advice['kind'], string>> = {
  unsupported: 'does not work',
  instruction: 'to do',
  action: 'will be done',
  limit: 'note',
  nothing: 'fine',
}

function identity({ version, distribution, earlier }: Discovery): Line[] {
  return [
    line('Kubernetes', version, (value) => value.text),
    line('distribution', distribution, (value) => NAMES[value] ?? value),
    ...(earlier.state === 'none'
      ? []
      : [
          {
            what: 'Sealane',
            value: { partial: 'partly installed', leaving: 'leaving', member: 'member' }[earlier.state],
            how: printable(
              earlier.missing.length === 0
                ? earlier.parts.slice(0, 2).join(', ')
                : `missing: ${earlier.missing.join(', ')}`,
            ),
          },
        ]),
  ]
}

function network({ podCIDRs, serviceCIDRs, cni }: Discovery): Line[] {
  return [
    line('pod CIDRs', podCIDRs, (value) => value.join(', ')),
    line('service CIDRs', serviceCIDRs, (value) => value.join(', ')),
    line('CNI', cni, (value) => `${value.name} (${value.mode})`),
  ]
}

function services({ kubeProxy, dns, others }: Discovery): Line[] {
  return [
    line('service proxy', kubeProxy, ({ mode, insteadOf }) =>
      insteadOf === undefined ? (mode === 'none' ? 'none' : `kube-proxy, ${mode}`) : insteadOf,
    ),
    line('cluster DNS', dns.flavour, (value) => {
      const address = dns.address === undefined ? '' : ` at ${dns.address.value}`
      return `${value}${address}, ${dns.domain.value}`
    }),
    ...others.map((one) => line('also present', one, (value) => value.name)),
  ]
}

const GATEWAYS_SHOWN = 3

function gateways({ gateways: { candidates } }: Discovery): Line[] {
  const shown = candidates.slice(0, GATEWAYS_SHOWN).map((candidate, i) => ({
    what: i === 0 ? 'gateways' : '',
    value: printable(candidate.node),
    how: printable(candidate.reasons.join(', ')),
  }))
  const more = candidates.length - shown.length
  return more <= 0 ? shown : [...shown, { what: '', value: `and ${more} more`, how: '' }]
}

function line<T>(what: string, finding: Finding<T> | undefined, text: (value: T) => string): Line {
  if (finding === undefined) return { what, value: 'not found', how: '' }
  const sure = finding.confidence === 'guess' ? ' (a guess)' : ''
  return { what, value: printable(text(finding.value)), how: `${printable(finding.how)}${sure}` }
}

function width(texts: readonly string[]): number {
  return Math.max(0, ...texts.map((text) => text.length))
}
