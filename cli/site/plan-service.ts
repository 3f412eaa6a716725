/** Plans the objects of a service that `sealane service add` writes, and reads its options. Pure. */
import {
  type Address,
  type FamilyName,
  type Prefix,
  classifyAddress,
  containsAddress,
  familyName,
  formatAddress,
  formatAddressPort,
  formatPrefix,
  parseAddress,
  parseAddressPort,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import {
  type EndpointSlice,
  InvalidNameError,
  LABEL_K8S_SERVICE_NAME,
  LABEL_MANAGED_BY,
  LABEL_ZONE,
  type Node,
  type Service,
  isDnsLabel,
} from '../../model/model.ts'
import { ANNOTATION_CHECK, type BackendCheck, formatBackendCheck } from '../../model/services/services.ts'

/** The value of LABEL_MANAGED_BY on slices, and of the annotation on Services, that the command has written. */
export const MANAGED_BY_COMMAND = 'service.sealane.io'
const ANNOTATION_MANAGED_BY = 'sealane.io/managed-by'
/** discovery.k8s.io/v1: the most endpoints of a slice. */
export const MAX_BACKENDS = 1000

type Protocol = 'TCP' | 'UDP' | 'SCTP'

export interface WantedPort {
  readonly name?: string
  readonly port: number
  readonly protocol: Protocol
  /** The port on which the backends listen. */
  readonly target: number
}

export interface WantedBackend {
  readonly address: Address
  /** The port on which this backend listens, instead of the target port of the service. */
  readonly port?: number
}

/** A service as the options of the command state it. */
export interface WantedService {
  readonly namespace: string
  readonly name: string
  readonly ports: readonly WantedPort[]
  readonly backends: readonly WantedBackend[]
  readonly check: BackendCheck | undefined
}

const PORT_FORM = '[name:]port[/tcp|/udp|/sctp][:targetPort], such as 8080, http:80:8080 or dns:53/udp'
const PORT = /^(?:([a-z0-9-]*[a-z-][a-z0-9-]*):)?(\d{1,5})(?:\/(tcp|udp|sctp))?(?::(\d{1,5}))?$/i

/** Parses one --port. Throws InvalidNameError. */
export function parseServicePort(text: string): WantedPort {
  const [, name, port = '0', protocol = 'tcp', target = port] = PORT.exec(text) ?? []
  const isPort = (number: number): boolean => number >= 1 && number <= 65_535
  if (name !== undefined && !isDnsLabel(name)) throw new InvalidNameError('--port', text, 'a DNS label as its name')
  if (!isPort(Number(port)) || !isPort(Number(target))) {
    throw new InvalidNameError('--port', text, PORT.test(text) ? 'ports from 1 to 65535' : PORT_FORM)
  }
  const named = name === undefined ? {} : { name }
  return { ...named, port: Number(port), protocol: protocol.toUpperCase() as Protocol, target: Number(target) }
}

/** Parses the value of one --backend: addresses with commas between them. Throws InvalidNameError. */
export function parseBackends(text: string): readonly WantedBackend[] {
  return text.split(',').map((part) => {
    const one = part.trim()
    const alone = addressOf(one)
    if (alone !== undefined) return usable({ address: alone }, one)
    try {
      return usable(parseAddressPort(one, '--backend'), one)
    } catch (error) {
      if (error instanceof InvalidNameError) throw error
      const form = 'an IP address, such as 10.42.1.30, 10.42.1.30:8080, fd00::1 or [fd00::1]:8080'
      const isName = /^[a-z0-9.-]*[a-z][a-z0-9.-]*(:\d*)?$/i.test(one) && !/^[\da-f:.]*$/i.test(one)
      throw new InvalidNameError('--backend', one, isName ? `${form}; host names are not resolved` : form)
    }
  })
}

function usable(backend: WantedBackend, text: string): WantedBackend {
  const kind = classifyAddress(backend.address)
  if (kind !== 'usable') {
    throw new InvalidNameError('--backend', text, `an address that other sites can reach, got a ${kind} address`)
  }
  return backend
}

function addressOf(text: string): Address | undefined {
  try {
    return parseAddress(text)
  } catch {
    return undefined
  }
}

/**
 * What contradicts in a service as a whole: the option, the value and what was expected. Undefined if nothing does.
 * `podCIDRs` are the ranges of the site, outside of which no other site can reach an address.
 */
export function serviceProblem(wanted: WantedService, podCIDRs: readonly string[]): string | undefined {
  const { ports, backends, check } = wanted
  const seen = new Set<string>()
  for (const { name, port, protocol } of ports) {
    const text = `${port}/${protocol}`
    if (seen.has(text)) return `--port ${text}: expected each port once per protocol`
    if (ports.length > 1 && name === undefined)
      return `--port ${text}: expected a name, as in http:${port}, as there are several ports`
    if (name !== undefined && seen.has(name))
      return `--port "${name}:${port}": expected a name of its own for each port`
    seen.add(text).add(name ?? text)
  }
  if (backends.length > MAX_BACKENDS) return `--backend: expected at most ${MAX_BACKENDS}, got ${backends.length}`
  const ranges = podCIDRs.map((text) => parsePrefix(text))
  for (const backend of backends) {
    const text = backendText(backend)
    // A backend without a port listens on the target port, so both forms may name the same one.
    const place = ports.length === 1 ? backendText({ port: ports[0]?.target ?? 0, ...backend }) : text
    if (seen.has(place)) return `--backend ${text}: expected each backend once`
    seen.add(place)
    if (backend.port !== undefined && ports.length > 1) {
      return `--backend ${text}: expected an address without a port, as there are several ports; use --port name:port:targetPort`
    }
    const range = ranges.find((one) => containsAddress(one, backend.address))
    if (range === undefined) {
      return `--backend ${text}: expected an address in the podCIDRs of this site (${podCIDRs.join(', ')}): other sites reach no other`
    }
    const reserved = reservedIn(range, backend.address)
    if (reserved !== undefined) {
      return `--backend ${text}: expected the address of a machine, got the ${reserved} of ${formatPrefix(range)}`
    }
  }
  if (check !== undefined && check.port === undefined && !ports.some(({ protocol }) => protocol === 'TCP')) {
    return `--check ${check.type}: expected a port, as in tcp:9000, or none, as the service has no TCP port`
  }
  return undefined
}

/** The address of an IPv4 range that no machine has: the first and the last one (RFC 1122 section 3.2.1.3). */
function reservedIn(range: Prefix, { family, value }: Address): string | undefined {
  if (family !== 4 || range.length > 30) return undefined
  if (value === range.value) return 'network address'
  return value === range.value + (1n << BigInt(32 - range.length)) - 1n ? 'broadcast address' : undefined
}

/** The Node whose pod ranges contain the address. Gateways find their way to a backend by it. */
export function nodeOf(address: Address, nodes: readonly Node[]): Node | undefined {
  return nodes.find(({ spec }) => {
    const ranges = spec?.podCIDRs ?? (spec?.podCIDR === undefined ? [] : [spec.podCIDR])
    return ranges.some((range) => containsAddress(parsePrefix(range), address))
  })
}

/**
 * The Service and its slices: one for each family and each port on which backends listen. Fields of `before`, the
 * present Service, that the options do not state are kept.
 */
export function planService(
  wanted: WantedService,
  nodes: readonly Node[],
  before?: Service,
): { readonly service: Service; readonly slices: readonly EndpointSlice[] } {
  const { namespace, name, ports, backends, check } = wanted
  const ipFamilies = [...new Set(backends.map(({ address }) => familyName(address.family)))].sort()
  const service: Service = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: {
      name,
      namespace,
      ...(before?.metadata.labels === undefined ? {} : { labels: before.metadata.labels }),
      annotations: { ...before?.metadata.annotations, [ANNOTATION_MANAGED_BY]: MANAGED_BY_COMMAND },
    },
    spec: {
      ...before?.spec,
      ipFamilies,
      ports: ports.map(({ name: title, port, protocol, target }) => ({
        ...(title === undefined ? {} : { name: title }),
        protocol,
        port,
        ...(target === port ? {} : { targetPort: target }),
      })),
    },
  }
  const groups = new Map<
    string,
    { readonly family: FamilyName; readonly port?: number; readonly of: WantedBackend[] }
  >()
  for (const backend of backends) {
    const family = familyName(backend.address.family)
    const port = backend.port === undefined || backend.port === ports[0]?.target ? undefined : backend.port
    const title = `${name}-${family.toLowerCase()}${port === undefined ? '' : `-${port}`}`
    const group = groups.get(title) ?? { family, ...(port === undefined ? {} : { port }), of: [] }
    group.of.push(backend)
    groups.set(title, group)
  }
  const slices = [...groups].map(([title, { family, port, of }]): EndpointSlice => {
    const annotations = check === undefined ? {} : { annotations: { [ANNOTATION_CHECK]: formatBackendCheck(check) } }
    return {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: {
        name: title,
        namespace,
        labels: { [LABEL_K8S_SERVICE_NAME]: name, [LABEL_MANAGED_BY]: MANAGED_BY_COMMAND },
        ...annotations,
      },
      addressType: family,
      ports: ports.map(({ name: portName, protocol, target }) => ({
        ...(portName === undefined ? {} : { name: portName }),
        protocol,
        port: port ?? target,
      })),
      endpoints: of.map(({ address }) => {
        const node = nodeOf(address, nodes)
        const zone = node?.metadata.labels?.[LABEL_ZONE]
        return {
          addresses: [formatAddress(address)],
          ...(node === undefined ? {} : { nodeName: node.metadata.name }),
          ...(zone === undefined ? {} : { zone }),
        }
      }),
    }
  })
  return { service, slices }
}

/** Whether the command has written the object: it changes and removes no other. */
export function isManaged({ kind, metadata }: Service | EndpointSlice): boolean {
  const mark = kind === 'Service' ? metadata.annotations?.[ANNOTATION_MANAGED_BY] : metadata.labels?.[LABEL_MANAGED_BY]
  return mark === MANAGED_BY_COMMAND
}

/** A service as lines, for comparisons: its ports, its backends and their check. */
export function serviceLines(service: Service | undefined, slices: readonly EndpointSlice[]): readonly string[] {
  const ports = (service?.spec?.ports ?? []).map(({ name, port, protocol = 'TCP', targetPort = port }) => {
    return `port ${name === undefined ? '' : `${name}:`}${port}/${protocol}${targetPort === port ? '' : ` to ${targetPort}`}`
  })
  const backends = slices.flatMap((slice) => {
    const at = (slice.ports ?? []).map(({ port = 0 }) => port).join(',')
    return (slice.endpoints ?? []).map(({ addresses, nodeName, zone }) => {
      const place = [nodeName === undefined ? '' : ` on ${nodeName}`, zone === undefined ? '' : ` in zone ${zone}`]
      return `backend ${addresses.join(',')} port ${at}${place.join('')}`
    })
  })
  const checks = new Set(slices.map(({ metadata }) => metadata.annotations?.[ANNOTATION_CHECK] ?? 'none'))
  return [...ports, ...backends.sort(), ...[...checks].sort().map((check) => `check ${check}`)]
}

/** The lines that are gone and those that are new, with `-` and `+`. */
export function lineChanges(before: readonly string[], after: readonly string[]): readonly string[] {
  return [
    ...before.filter((line) => !after.includes(line)).map((line) => `- ${line}`),
    ...after.filter((line) => !before.includes(line)).map((line) => `+ ${line}`),
  ]
}

function backendText({ address, port }: WantedBackend): string {
  return port === undefined ? formatAddress(address) : formatAddressPort({ address, port })
}
