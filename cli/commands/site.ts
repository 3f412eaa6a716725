/** `sealane site`: commands for the files and the services of a site without Kubernetes. */
import type { Command } from 'commander'
import { formatPrefix, parsePrefix } from '../../model/addresses/addresses.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { type CommandContext, collect, durationOption, siteOption, subcommand } from '../context/context.ts'

export function addSiteCommand(program: Command, context: CommandContext): void {
  const site = subcommand(
    program,
    'site',
    'Writes and checks the files of a site without Kubernetes, and installs its parts as systemd services.',
    'sealane site check --site site.yaml',
  )
  addInit(site, context)
  addCheck(site, context)
  addInstall(site, context)
  addUninstall(site, context)
  addRestart(site, context)
}

interface InitOptions {
  readonly name?: string
  readonly node?: readonly string[]
  readonly podCidr?: readonly string[]
  readonly dns?: readonly string[]
  readonly publicAddress?: readonly string[]
  readonly gateway?: readonly string[]
  readonly yes: boolean
}

const words = collect((text: string) => text)

function addInit(site: Command, context: CommandContext): void {
  subcommand(
    site,
    'init',
    'Writes site.yaml and objects/nodes.yaml of a new site. Asks for what no flag says; existing files stay.',
    'sealane site init milano --name milano --node gw=192.168.1.1 --pod-cidr 10.42.0.0/24 --dns 10.42.0.1 --public-address none',
  )
    .argument('[folder]', 'the folder of the site', '.')
    .option('--name <name>', 'name of the site, unique in the clusterset')
    .option('--node <name=address>', 'a machine of the site; may be given several times, the gateway first', words)
    .option(
      '--pod-cidr <[name=]cidr>',
      'range of the containers or services on a machine, the first one without a name; may be given several times',
      words,
    )
    .option('--dns <address[:port]>', 'address at which dns answers; may be given several times', words)
    .option(
      '--public-address <[name=]address>',
      'address at which other sites reach a gateway, or none; may be given several times',
      words,
    )
    .option('--gateway <name>', 'a gateway among the machines; may be given several times (default: the first)', words)
    .option('--yes', 'ask nothing: what no flag says is taken from this machine', false)
    .action(async (folder: string, options: InitOptions) => {
      const { name, node, podCidr, dns, publicAddress, gateway = [], yes } = options
      const all = {
        ...{ name: name === undefined ? undefined : [name], node, dns },
        ...{ 'pod-cidr': podCidr, 'public-address': publicAddress },
      }
      const { initSite } = await import('../site/init.ts')
      await initSite({ folder, given: all, gateways: gateway, yes }, context)
    })
}

interface InstallOptions {
  readonly site: string
  readonly node: string
  readonly dryRun: boolean
  readonly timeout: number
}

const READY_MS = 60_000

function readyOption(): ReturnType<typeof durationOption> {
  return durationOption('--timeout', 'how long each part may take until it is ready', READY_MS, { minMs: 1000 })
}

function addInstall(site: Command, context: CommandContext): void {
  subcommand(
    site,
    'install',
    'Installs the parts of this node as systemd services, and starts them one after the other. What is as wanted stays.',
    'sealane site install --site /etc/sealane/site.yaml --node gw',
  )
    .addOption(siteOption())
    .requiredOption('--node <name>', "this machine's Node in the site")
    .option('--dry-run', 'print the units and what would change, and change nothing', false)
    .addOption(readyOption())
    .action(async ({ site: file, node, dryRun, timeout: timeoutMs }: InstallOptions) => {
      const { installUnits, systemHost } = await import('../site/units.ts')
      const { ownProgram } = await import('../site/unit-files.ts')
      const init = { site: file, node, program: ownProgram(), dryRun, timeoutMs }
      await installUnits(init, context, systemHost(new SystemClock()))
    })
}

function addUninstall(site: Command, context: CommandContext): void {
  subcommand(
    site,
    'uninstall',
    'Stops and removes the systemd services that "site install" wrote. State and links of the node stay.',
    'sealane site uninstall',
  ).action(async () => {
    const { systemHost, uninstallUnits } = await import('../site/units.ts')
    await uninstallUnits(context, systemHost(new SystemClock()))
  })
}

function addRestart(site: Command, context: CommandContext): void {
  subcommand(
    site,
    'restart',
    'Restarts the systemd services of this node that run, each once the one before it is ready.',
    'sealane site restart',
  )
    .addOption(readyOption())
    .action(async ({ timeout: timeoutMs }: Pick<InstallOptions, 'timeout'>) => {
      const { restartUnits, systemHost } = await import('../site/units.ts')
      await restartUnits({ timeoutMs }, context, systemHost(new SystemClock()))
    })
}

interface CheckOptions {
  readonly site: string
  readonly json: boolean
  readonly clustersetRange?: readonly string[]
}

function addCheck(site: Command, context: CommandContext): void {
  subcommand(
    site,
    'check',
    'Checks the site file and its folder of objects, and changes nothing. Exit code 0: no finding, 2: findings.',
    'sealane site check --site site.yaml --json',
  )
    .addOption(siteOption())
    .option('--json', 'print the findings as JSON', false)
    .option(
      '--clusterset-range <cidr>',
      'a range of the clusterset, if its broker does not have the default ones; may be given several times',
      collect((text: string) => formatPrefix(parsePrefix(text, '--clusterset-range'))),
    )
    .action(async ({ clustersetRange: ranges, ...options }: CheckOptions) => {
      const { runSiteCheck } = await import('../site/check.ts')
      await runSiteCheck({ ...options, ranges }, context)
    })
}
