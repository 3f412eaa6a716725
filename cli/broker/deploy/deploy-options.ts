/** The options of `sealane broker deploy` and their effects on the broker's values. Pure. */
import {
  type BrokerForm,
  ETCD_CLIENT_SECRET,
  type EtcdLogin,
  type InstallValues,
  type ServiceType,
  formOf,
  includedEtcdUrl,
} from '../../../install/values/values.ts'
import { formatBrokerAddress } from '../../../protocol/protocol.ts'
import { type HostPort, UserError, parseHostPort } from '../../../runtime/runtime.ts'
import { shellWord } from '../../context/context.ts'
import {
  type ImageOptions,
  type MarkOptions,
  asksResources,
  markFlags,
  withImage,
  withMarks,
} from '../../installation/installation.ts'

// The options of `sealane broker deploy` for replicas and their etcd. Pure.

/** If an option is undefined, an installed broker keeps its value, and a new one gets the default. */
export interface ReplicaOptions {
  readonly replicas?: number
  /** Each as host:port. */
  readonly etcdEndpoints?: readonly string[]
  readonly etcdPrefix?: string
  /** Logs in with a password. If undefined, the broker uses a client certificate. */
  readonly etcdUser?: string
  readonly etcdSecret?: string
  readonly etcdImage?: string
  readonly etcdStorageSize?: string
}

const MAX_REPLICAS = 9
const DEFAULT_ETCD_PORT = 2379
const MAX_ENDPOINTS = 16
const DEFAULT_PREFIX = '/sealane'

/** Throws UserError (exit code 2) for options that cannot be combined. */
export function withReplicas(
  values: InstallValues,
  chosen: ReplicaOptions & { readonly storageClass?: string },
): InstallValues {
  const form = wantedForm(formOf(values), chosen)
  checkTogether(form, chosen)
  const { broker, etcd } = values
  const { storageClass } = chosen
  if (form === 'own') return { ...values, broker: { ...broker, store: 'sqlite' }, etcd: { ...etcd, enabled: false } }
  const replicas = chosen.replicas ?? broker.replicas
  if (form === 'given') {
    const given = { ...broker, store: 'etcd', replicas, etcd: givenEtcd(broker.etcd, chosen) }
    return { ...values, broker: given, etcd: { ...etcd, enabled: false } }
  }
  const url = includedEtcdUrl(broker.namespace)
  const own = { url, login: 'certificate' satisfies EtcdLogin, secret: ETCD_CLIENT_SECRET }
  const { size, storageClassName } = etcd.storage
  return {
    ...values,
    broker: { ...broker, store: 'etcd', replicas, etcd: own },
    etcd: {
      ...etcd,
      enabled: true,
      image: chosen.etcdImage ?? etcd.image,
      storage: { size: chosen.etcdStorageSize ?? size, storageClassName: storageClass ?? storageClassName },
    },
  }
}

function wantedForm(form: BrokerForm, { replicas, etcdEndpoints }: ReplicaOptions): BrokerForm {
  if (etcdEndpoints !== undefined) return 'given'
  if (replicas === undefined) return form
  if (replicas === 1) return 'own'
  return form === 'own' ? 'included' : form
}

function checkTogether(form: BrokerForm, chosen: ReplicaOptions): void {
  const given = ['etcdPrefix', 'etcdUser', 'etcdSecret'] as const
  const included = ['etcdImage', 'etcdStorageSize'] as const
  const said = (names: readonly (keyof ReplicaOptions)[]): string | undefined =>
    names.find((name) => chosen[name] !== undefined)
  const wrong = (name: string, expected: string): UserError =>
    new UserError(`${flagOf(name)}: ${expected}`, { exitCode: 2 })
  const [aboutGiven, aboutIncluded] = [said(given), said(included)]
  if (aboutGiven !== undefined && form !== 'given') throw wrong(aboutGiven, 'expected --etcd-endpoints as well')
  if (aboutIncluded !== undefined && form === 'given')
    throw wrong(
      aboutIncluded,
      'applies only to an etcd that is installed with the broker; expected no --etcd-endpoints',
    )
  if (aboutIncluded !== undefined && form === 'own') throw wrong(aboutIncluded, 'expected --replicas 3 as well')
}

function flagOf(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`
}

function givenEtcd(before: InstallValues['broker']['etcd'], chosen: ReplicaOptions): InstallValues['broker']['etcd'] {
  const was = readEtcdUrl(before.url)
  const endpoints = chosen.etcdEndpoints ?? was.endpoints
  const user = chosen.etcdUser ?? was.user
  const prefix = chosen.etcdPrefix ?? was.prefix
  return {
    url: `etcd://${user === undefined ? '' : `${user}@`}${endpoints.join(',')}${prefix}`,
    login: (user === undefined ? 'certificate' : 'password') satisfies EtcdLogin,
    secret: chosen.etcdSecret ?? before.secret,
  }
}

interface ReadEtcdUrl {
  readonly user: string | undefined
  readonly endpoints: readonly string[]
  readonly prefix: string
}

/** Parses a URL that the broker accepts. Parts that cannot be parsed are empty. */
export function readEtcdUrl(url: string): ReadEtcdUrl {
  const [, user, hosts = '', path = ''] = /^etcd:\/\/(?:([^@/]*)@)?([^@/]+)(\/.*)?$/.exec(url) ?? []
  const endpoints = hosts.split(',').filter((host) => host !== '')
  return { user, endpoints, prefix: path === '' ? DEFAULT_PREFIX : path }
}

/** `h1:2379,h2:2379`, each with or without https://. Throws UserError. */
export function parseEtcdEndpoints(text: string): readonly string[] {
  const found = text.split(',').map((one) => {
    const at = one.trim()
    if (/^http:\/\//i.test(at))
      throw invalid(
        text,
        'etcd over TLS, https://host:port or host:port, because without TLS anyone on the network could read the store',
      )
    return endpointText(at.replace(/^https:\/\//i, '').replace(/\/$/, ''), text)
  })
  const endpoints = [...new Set(found)]
  if (endpoints.length > MAX_ENDPOINTS) throw invalid(text, `at most ${MAX_ENDPOINTS} endpoints`)
  return endpoints
}

function endpointText(at: string, whole: string): string {
  if (at === '' || at.includes('/') || at.includes('@')) throw invalid(whole, 'host:port, separated by commas')
  const hasPort = /:\d+$/.test(at) && !/^\[[^\]]*$/.test(at)
  const { host, port }: HostPort = parseHostPort(hasPort ? at : `${at}:${DEFAULT_ETCD_PORT}`, '--etcd-endpoints')
  return formatBrokerAddress({ host, port })
}

function invalid(text: string, expected: string): UserError {
  return new UserError(`--etcd-endpoints ${JSON.stringify(text.slice(0, 300))}: expected ${expected}`, { exitCode: 2 })
}

/** Throws UserError. */
export function parseReplicas(text: string): number {
  const count = /^\d{1,4}$/.test(text) ? Number(text) : 0
  if (count >= 1 && count <= MAX_REPLICAS) return count
  throw new UserError(
    `--replicas ${JSON.stringify(text.slice(0, 20))}: expected 1 (with its own volume) to ${MAX_REPLICAS} (on etcd)`,
    { exitCode: 2 },
  )
}

/** Throws UserError. */
export function parseEtcdPrefix(text: string): string {
  if (/^(\/[A-Za-z0-9._-]+)+$/.test(text) && text.length <= 200) return text
  throw new UserError(
    `--etcd-prefix ${JSON.stringify(text.slice(0, 300))}: expected a path such as ${DEFAULT_PREFIX}`,
    {
      exitCode: 2,
    },
  )
}

/** If an option is undefined, an installed broker keeps its value, and a new one gets the default. */
export interface BrokerOptions extends ImageOptions, ReplicaOptions, MarkOptions {
  readonly serviceType?: ServiceType
  /** Each as host:port. `auto` alone determines the addresses from the Service again. */
  readonly advertise?: readonly string[]
  readonly clusterset?: string
  readonly storageClass?: string
  /** Guarded namespaces that may be exported, in addition to the installed ones. */
  readonly allowNamespace?: readonly string[]
  /** Whether every cluster that joins waits for an operator's approval. */
  readonly approve?: boolean
  /** What sets the topology. */
  readonly topologyFrom?: 'commands' | 'object'
  /** Moves the state to another store if the options request one. */
  readonly move?: boolean
  /** An RFC 3339 time: the broker may serve a state that is empty or old, and was so at this time. */
  readonly acceptEmpty?: string
}

/** Determines the addresses of the broker from its Service. */
export const AUTO_ADVERTISE = 'auto'

/**
 * Applies the options to the values. An empty `broker.advertise` has to be determined from the Service. The addresses
 * and the traffic policy of another type of Service are dropped.
 */
export function withOptions(values: InstallValues, chosen: BrokerOptions): InstallValues {
  const { broker } = values
  const type = chosen.serviceType ?? broker.service.type
  const sameType = type === broker.service.type
  const kept = sameType ? broker.advertise : []
  const advertise = chosen.advertise ?? kept
  const policy = broker.service.externalTrafficPolicy
  const isKept = (one: string): boolean =>
    (sameType || !one.startsWith('--external-traffic-policy=')) &&
    (chosen.approve === undefined || !one.startsWith('--approve='))
  const args = broker.extraArgs.filter(isKept)
  const allowed = (chosen.allowNamespace ?? []).map((name) => `--allow-namespace=${name}`)
  const approved = chosen.approve === true ? ['--approve=yes'] : []
  const accepted = chosen.acceptEmpty === undefined ? [] : [`--accept-empty=${chosen.acceptEmpty}`]
  const replicated = withReplicas(values, chosen)
  if (asksResources(chosen, 'etcd') && formOf(replicated) !== 'included') {
    throw new UserError('--resources etcd: expected an etcd that is installed with the broker (--replicas 3)', {
      exitCode: 2,
    })
  }
  const hasOwnVolume = formOf(replicated) === 'own'
  const ownClass = hasOwnVolume && chosen.storageClass !== undefined ? { storageClassName: chosen.storageClass } : {}
  const named = withImage(
    {
      ...replicated,
      broker: {
        ...replicated.broker,
        advertise: advertise.filter((one) => one !== AUTO_ADVERTISE),
        clusterset: chosen.clusterset ?? broker.clusterset,
        topologyFrom: chosen.topologyFrom ?? broker.topologyFrom,
        extraArgs: [...new Set([...args, ...allowed, ...approved, ...accepted])],
        service: { ...broker.service, type, externalTrafficPolicy: sameType ? policy : '' },
        storage: { ...broker.storage, ...ownClass },
      },
    },
    chosen,
  )
  return withMarks(named, chosen)
}

/** The same command with additional words. Flags in `more` override the options. */
export function deployCommand(flags: string, chosen: BrokerOptions, more: readonly string[]): string {
  const pairs: readonly (readonly [string, string | undefined])[] = [
    ['--service-type', chosen.serviceType],
    ...(chosen.advertise ?? []).map((one) => ['--advertise', one] as const),
    ['--clusterset', chosen.clusterset],
    ['--storage-class', chosen.storageClass],
    ['--approve', chosen.approve === undefined ? undefined : chosen.approve ? 'yes' : 'no'],
    ['--topology-from', chosen.topologyFrom],
    ['--replicas', chosen.replicas === undefined ? undefined : String(chosen.replicas)],
    ['--etcd-endpoints', chosen.etcdEndpoints?.join(',')],
    ['--etcd-prefix', chosen.etcdPrefix],
    ['--etcd-user', chosen.etcdUser],
    ['--etcd-secret', chosen.etcdSecret],
    ['--etcd-image', chosen.etcdImage],
    ['--etcd-storage-size', chosen.etcdStorageSize],
    ...(chosen.allowNamespace ?? []).map((one) => ['--allow-namespace', one] as const),
    ['--image', chosen.image],
    ['--image-pull-policy', chosen.imagePullPolicy],
    ...(chosen.imagePullSecret ?? []).map((one) => ['--image-pull-secret', one] as const),
    ...markFlags(chosen).map(([flag, word]) => [flag, shellWord(word)] as const),
  ]
  const said = pairs.flatMap(([flag, value]) => (value === undefined || more.includes(flag) ? [] : [flag, value]))
  const once = chosen.acceptEmpty === undefined ? [] : ['--accept-empty']
  const moves = chosen.move === true ? ['--move'] : []
  return ['sealane broker deploy', flags, ...said, ...once, ...moves, ...more].join(' ')
}
