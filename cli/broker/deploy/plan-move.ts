/**
 * Plans the pod that moves the state of a broker in a cluster between its volume and an etcd. It runs `sealane broker
 * migrate` with the volumes and Secrets of both forms of the broker. Pure.
 */
import { ETCD_LOGIN_VOLUME, planBroker } from '../../../install/install.ts'
import { type InstallValues, type ManifestObject, formOf } from '../../../install/values/values.ts'

export const MOVE_POD = 'sealane-broker-move'
const STATE = '/var/lib/sealane/broker'
const SQLITE = 'sqlite'

interface Named {
  readonly name: string
}

interface PodSpec {
  readonly containers: readonly (Named & {
    readonly args: readonly string[]
    readonly volumeMounts: readonly Named[]
  })[]
  readonly volumes: readonly Named[]
}

interface Template {
  readonly metadata: object
  readonly spec: PodSpec
}

export interface MoveInit {
  readonly before: InstallValues
  readonly values: InstallValues
}

/**
 * The pod has the labels of a broker, so that the NetworkPolicy of etcd admits it. It must never be ready, or the
 * Service would send members to it. Nothing in it listens, so this probe fails whatever probe a broker has.
 */
const NEVER_READY = { tcpSocket: { port: 1 } }

/** True if the state can be moved: between a volume and an etcd, in either direction. */
export function canMove({ before, values }: MoveInit): boolean {
  return (formOf(before) === 'own') !== (formOf(values) === 'own')
}

/** Call this only if canMove() is true. */
export function planMovePod({ before, values }: MoveInit): ManifestObject {
  const toEtcd = formOf(before) === 'own'
  const [own, shared] = toEtcd ? [before, values] : [values, before]
  // The pod runs the requested image, whatever image ran before.
  const template = templateOf({ ...own, image: values.image, imagePullSecrets: values.imagePullSecrets }, 'StatefulSet')
  const { spec: etcd } = templateOf(shared, 'Deployment')
  const [container, ...others] = template.spec.containers
  const [replica] = etcd.containers
  if (container === undefined || replica === undefined) throw new Error('a broker has a container')
  const isLogin = ({ name }: Named): boolean => name === ETCD_LOGIN_VOLUME
  const { url } = shared.broker.etcd
  const stores = toEtcd ? [SQLITE, url] : [url, SQLITE]
  const { name, image, imagePullPolicy, env, resources, securityContext } = container as typeof container &
    Readonly<Record<string, unknown>>
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { ...template.metadata, name: MOVE_POD, namespace: values.broker.namespace },
    spec: {
      ...template.spec,
      restartPolicy: 'Never',
      containers: [
        {
          ...{ name, image, imagePullPolicy, env, resources, securityContext },
          readinessProbe: NEVER_READY,
          terminationMessagePolicy: 'FallbackToLogsOnError',
          args: [
            ...['broker', 'migrate', '--from', stores[0] ?? '', '--to', stores[1] ?? '', '--state', STATE],
            ...loginArgs(replica.args),
          ],
          volumeMounts: [...container.volumeMounts, ...replica.volumeMounts.filter(isLogin)],
        },
        ...others,
      ],
      volumes: [...template.spec.volumes, ...etcd.volumes.filter(isLogin)],
    },
  }
}

function templateOf(values: InstallValues, kind: 'StatefulSet' | 'Deployment'): Template {
  const [broker] = planBroker(values)
  const workload = broker?.objects.find((object) => object.kind === kind)
  if (workload === undefined) throw new Error(`the broker of these values has no ${kind}`)
  return (workload['spec'] as { readonly template: Template }).template
}

const LOGIN_FLAGS = ['--etcd-ca', '--etcd-cert', '--etcd-key', '--etcd-password-file']

function loginArgs(args: readonly string[]): readonly string[] {
  return args.flatMap((word, i) => (LOGIN_FLAGS.includes(word) ? [word, args[i + 1] ?? ''] : []))
}
