/** What the flags of `sealane broker deploy` say of the broker. Pure. */
import { type InstallValues, type ServiceType, formOf } from '../../../install/values.ts'
import { shellWord } from '../../target.ts'
import { type MarkOptions, asksResources, markFlags, withMarks } from '../marks/mark-options.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { type ImageOptions, withImage } from '../join/values-options.ts'
import { type ReplicaOptions, withReplicas } from '../replicas/replica-options.ts'

/** Absent: what is installed keeps its own; else the default. */
export interface BrokerOptions extends ImageOptions, ReplicaOptions, MarkOptions {
  readonly serviceType?: ServiceType
  /** host:port each; `auto` alone: found out from the Service again. */
  readonly advertise?: readonly string[]
  readonly clusterset?: string
  readonly storageClass?: string
  /** Guarded namespaces that may be exported, beside those that may be already. */
  readonly allowNamespace?: readonly string[]
  /** Whether every cluster that joins waits for an operator. */
  readonly approve?: boolean
  /** Takes the state along to another store, where the command asks for one. */
  readonly move?: boolean
  /** RFC 3339: a state that is empty or old, and was so at this time, is to be served. */
  readonly acceptEmpty?: string
}

/** Where members find the broker, as the Service says it. */
export const AUTO_ADVERTISE = 'auto'

/**
 * An empty `broker.advertise` is to be found out: that of another type of Service, and its policy, do not count any
 * more.
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
    throw new UserError('--resources etcd: expected an etcd that is installed with the broker, with --replicas 3', {
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
        extraArgs: [...new Set([...args, ...allowed, ...approved, ...accepted])],
        service: { ...broker.service, type, externalTrafficPolicy: sameType ? policy : '' },
        storage: { ...broker.storage, ...ownClass },
      },
    },
    chosen,
  )
  return withMarks(named, chosen)
}

/** The same command with more words; what is in `more` goes over what was wished. */
export function deployCommand(flags: string, chosen: BrokerOptions, more: readonly string[]): string {
  const pairs: readonly (readonly [string, string | undefined])[] = [
    ['--service-type', chosen.serviceType],
    ...(chosen.advertise ?? []).map((one) => ['--advertise', one] as const),
    ['--clusterset', chosen.clusterset],
    ['--storage-class', chosen.storageClass],
    ['--approve', chosen.approve === undefined ? undefined : chosen.approve ? 'yes' : 'no'],
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
