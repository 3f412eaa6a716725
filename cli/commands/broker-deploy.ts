/** `sealane broker deploy`: installs the broker in a cluster. */
import type { Command } from 'commander'
import type { ServiceType } from '../../install/values/values.ts'
import { isDnsSubdomain, parseDnsLabel } from '../../model/model.ts'
import { parseBrokerAddress } from '../../protocol/protocol.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import {
  type CommandContext,
  type KubeTarget,
  addKubeOptions,
  approveOption,
  choiceOption,
  collect,
  durationOption,
  parsed,
  quoted,
  subcommand,
  targetFlags,
  targetToAsk,
} from '../context/context.ts'
import {
  AUTO_ADVERTISE,
  type ReplicaOptions,
  parseEtcdEndpoints,
  parseEtcdPrefix,
  parseReplicas,
} from '../broker/broker.ts'
import {
  type ImageOptions,
  type MarkOptions,
  addImageOptions,
  addMarkOptions,
  parseImage,
  parseQuantity,
} from '../installation/installation.ts'

interface DeployOptions extends KubeTarget, ImageOptions, ReplicaOptions, MarkOptions {
  readonly serviceType?: ServiceType
  readonly advertise?: readonly string[]
  readonly clusterset?: string
  readonly storageClass?: string
  readonly allowNamespace?: readonly string[]
  readonly approve?: true | 'yes' | 'no'
  readonly topologyFrom?: 'commands' | 'object'
  readonly move: boolean
  readonly acceptEmpty: boolean
  readonly dryRun: boolean
  readonly force: boolean
  readonly timeout: number
}

const SERVICE_TYPES: readonly ServiceType[] = ['LoadBalancer', 'NodePort', 'ClusterIP']

export function addBrokerDeployCommand(broker: Command, context: CommandContext): void {
  const command = subcommand(
    broker,
    'deploy',
    'Installs or updates the broker on a cluster, and prints the next command. Settings without a flag stay unchanged.',
    'sealane broker deploy --context hub --service-type NodePort',
  )
  addMarkOptions(addReplicaOptions(addImageOptions(addKubeOptions(command))), ['broker', 'etcd'])
    .addOption(
      choiceOption(
        '--service-type <type>',
        'type of the Service through which members reach the broker (default: as installed, else LoadBalancer)',
        SERVICE_TYPES,
      ),
    )
    .option(
      '--advertise <host:port>',
      `address at which members reach the broker; may be given several times; "${AUTO_ADVERTISE}": the address of the Service (default: as installed, else "${AUTO_ADVERTISE}")`,
      collect((text) => {
        if (text !== AUTO_ADVERTISE) parseBrokerAddress(text, '--advertise')
        return text
      }),
    )
    .option(
      '--clusterset <name>',
      'name of the clusterset; fixed at the first start (default: "default")',
      parsed((text: string) => parseDnsLabel(text, '--clusterset')),
    )
    .option(
      '--storage-class <name>',
      "StorageClass of the broker's volume, or of the volumes of its etcd (default: that of the cluster)",
    )
    .option(
      '--allow-namespace <name>',
      'also allow exports from this guarded namespace, such as default or kube-*; may be given several times',
      collect((text: string) => parseDnsLabel(text, '--allow-namespace')),
    )
    .addOption(approveOption())
    .addOption(
      choiceOption(
        '--topology-from <source>',
        'what sets the topology: commands, or also object Topology default of the cluster (default: as installed, else commands)',
        ['commands', 'object'] as const,
      ),
    )
    .option('--move', 'when the store changes: stop the broker and move its state to the new store', false)
    .option('--accept-empty', 'start once even if the state is empty or older than the state that members have', false)
    .option('--dry-run', 'show the changes without making them', false)
    .option('--force', 'install even if something is known not to work', false)
    .addOption(durationOption('--timeout', 'how long to wait for each step', 120_000))
    .action((options: DeployOptions) => deploy(options, targetToAsk(command, context) ?? {}, context))
}

function addReplicaOptions(command: Command): Command {
  return command
    .option(
      '--replicas <count>',
      'number of broker replicas: 1 has its own volume; more share an etcd, which is also installed unless --etcd-endpoints names another',
      parsed(parseReplicas),
    )
    .option(
      '--etcd-endpoints <host:port,…>',
      'an external etcd, over TLS, as the store; sets the default of --replicas to 3',
      parsed(parseEtcdEndpoints),
    )
    .option('--etcd-prefix <path>', 'key prefix in the external etcd (default: /sealane)', parsed(parseEtcdPrefix))
    .option(
      '--etcd-user <name>',
      'user of the external etcd, with a password (default: a client certificate)',
      parsed(etcdUser),
    )
    .option(
      '--etcd-secret <name>',
      'Secret with ca.crt, and either tls.crt and tls.key or password (default: sealane-etcd-client)',
      parsed(secretName),
    )
    .option('--etcd-image <image>', 'image of the etcd that is installed with the broker', parsed(parseImage))
    .option(
      '--etcd-storage-size <size>',
      'size of the volume of each member of that etcd (default: 8Gi)',
      parsed(storageSize),
    )
}

const etcdUser = (text: string): string => {
  if (/^[A-Za-z0-9._-]{1,64}$/.test(text)) return text
  throw new UserError(`--etcd-user ${quoted(text)}: expected a name of letters, digits, '.', '_' and '-'`)
}

const secretName = (text: string): string => {
  if (isDnsSubdomain(text)) return text
  throw new UserError(`--etcd-secret ${quoted(text)}: expected the name of a Secret`)
}

const storageSize = (text: string): string => {
  if (parseQuantity(text) >= MIN_ETCD_BYTES) return text
  throw new UserError(`--etcd-storage-size ${quoted(text)}: expected at least 1Gi, such as 8Gi`)
}

/** Room for some snapshots and the change log, however small the data is. */
const MIN_ETCD_BYTES = 2 ** 30

async function deploy(options: DeployOptions, target: KubeTarget, context: CommandContext): Promise<void> {
  const { signal, output } = context
  const { deployBroker } = await import('../broker/deploy/deploy-broker.ts')
  const { withAdmin } = await import('../context/with-admin.ts')
  const { describeChange } = await import('../installation/apply-objects.ts')
  const clock = new SystemClock()
  const { acceptEmpty, approve, ...rest } = options
  const asks = approve === undefined ? {} : { approve: approve !== 'no' }
  const once = acceptEmpty ? { acceptEmpty: new Date(clock.now()).toISOString() } : {}
  const chosen = { ...rest, ...asks, ...once }
  await withAdmin(target, clock, context, async ({ admin }) => {
    const flags = targetFlags(target, admin.contextName)
    const advertised = await deployBroker(admin, {
      chosen,
      force: options.force,
      dryRun: options.dryRun,
      flags,
      timeoutMs: options.timeout,
      clock,
      signal,
      say: (text) => output.remark(text),
      report: (change) => output.remark(describeChange(change, options.dryRun)),
    })
    if (options.dryRun) output.answer('nothing was changed\n')
    else reportNext(flags, advertised, output)
  })
}

function reportNext(flags: string, advertised: readonly string[], output: CommandContext['output']): void {
  output.remark(`the broker is ready at ${advertised.join(', ')}; next, for each cluster to join:\n`)
  output.answer(`sealane token create ${flags}\n`)
}
