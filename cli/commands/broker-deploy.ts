/** `sealane broker deploy`: the broker on a cluster. */
import type { Command } from 'commander'
import { parseDnsLabel } from '../../model/ids.ts'
import { parseBrokerAddress } from '../../protocol/broker-address.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { type CommandContext, choiceOption, collect, durationOption, parsed, subcommand } from '../context.ts'
import { type ImageOptions, addImageOptions, withImage } from '../kube/values-options.ts'
import { type KubeTarget, addKubeOptions, targetFlags } from '../target.ts'

interface DeployOptions extends KubeTarget, ImageOptions {
  readonly serviceType: string
  readonly advertise?: readonly string[]
  readonly clusterset: string
  readonly storageClass?: string
  readonly dryRun: boolean
  readonly timeout: number
}

const SERVICE_TYPES = ['LoadBalancer', 'NodePort', 'ClusterIP'] as const

export function addBrokerDeployCommand(broker: Command, { signal, output }: CommandContext): void {
  const command = subcommand(
    broker,
    'deploy',
    'Installs the broker on a cluster and prints the command to run next.',
    'sealane broker deploy --context hub --service-type NodePort',
  )
  addImageOptions(addKubeOptions(command))
    .addOption(choiceOption('--service-type <type>', 'how members reach it', SERVICE_TYPES, 'LoadBalancer'))
    .option(
      '--advertise <host:port>',
      'where members find it, when not where the Service says; may be given several times',
      collect((text) => {
        parseBrokerAddress(text, '--advertise')
        return text
      }),
    )
    .option(
      '--clusterset <name>',
      'name of the clusterset, on first start',
      parsed((text: string) => parseDnsLabel(text, '--clusterset')),
      'default',
    )
    .option('--storage-class <name>', "StorageClass of its volume (default: the cluster's)")
    .option('--dry-run', 'show every change and make none', false)
    .addOption(durationOption('--timeout', 'how long to wait for each step', 120_000))
    .action((options: DeployOptions) => deploy(options, { signal, output }))
}

async function deploy(options: DeployOptions, { signal, output }: CommandContext): Promise<void> {
  const { DEFAULT_VALUES } = await import('../../install/values.ts')
  const { deployBroker } = await import('../kube/deploy-broker.ts')
  const { withAdmin } = await import('../kube/installed-site.ts')
  const { describeChange } = await import('../kube/apply-join.ts')
  const clock = new SystemClock()
  const { broker } = DEFAULT_VALUES
  const values = withImage(
    {
      ...DEFAULT_VALUES,
      broker: {
        ...broker,
        clusterset: options.clusterset,
        service: { ...broker.service, type: options.serviceType },
        storage: { ...broker.storage, storageClassName: options.storageClass ?? '' },
      },
    },
    options,
  )
  await withAdmin(options, clock, { signal, output }, async ({ admin }) => {
    const advertised = await deployBroker(admin, {
      values,
      advertise: options.advertise ?? [],
      dryRun: options.dryRun,
      timeoutMs: options.timeout,
      clock,
      signal,
      say: (text) => output.remark(text),
      tell: (change) => output.remark(describeChange(change, options.dryRun)),
    })
    if (options.dryRun) output.answer('nothing was changed\n')
    else tellNext(options, advertised, output)
  })
}

function tellNext(target: KubeTarget, advertised: readonly string[], output: CommandContext['output']): void {
  output.remark(`the broker is ready at ${advertised.join(', ')}; next, for each cluster that is to join:\n`)
  output.answer(`sealane token create ${targetFlags(target)}\n`)
}
