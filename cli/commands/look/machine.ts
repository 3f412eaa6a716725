/**
 * `sealane machine-facts`: what `sealane diagnose` of somebody elsewhere asks in a pod: about the machine whose network
 * the pod shares, or about broker and DNS servers as pods reach them. It is not in the help: people ask diagnose.
 */
import type { Command } from 'commander'
import type { Fact } from '../../../explain/facts/fact.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { type CommandContext, collect } from '../../context.ts'
import {
  type AskedServer,
  MACHINE_COMMAND,
  MOST_SERVERS,
  type MachineFacts,
  parseAskedServer,
} from '../../diagnose/cluster/machine-command.ts'
import { throwingUsageErrors } from '../../parse-command-line.ts'

interface MachineOptions {
  readonly node?: string
  readonly folder?: readonly string[]
  readonly broker: boolean
  readonly dns?: readonly AskedServer[]
}

export function addMachineCommand(program: Command, context: CommandContext): void {
  throwingUsageErrors(program.command(MACHINE_COMMAND, { hidden: true }))
    .description('Prints, as JSON, what diagnose wants to know of this machine, or from this pod.')
    .helpCommand(false)
    .option('--node <name>', 'the name of its Node; without it the kernel is not looked at')
    .option(
      '--folder <path>',
      'whose disk is looked at; several times',
      collect((path) => path),
    )
    .option('--broker', 'calls the broker, with the identity of this cluster', false)
    .option('--dns <role=address:port>', 'asks this server for the zone; several times', collect(parseAskedServer))
    .action(async (options: MachineOptions) => {
      const { dns = [] } = options
      if (dns.length > MOST_SERVERS)
        throw new UserError(`--dns: ${dns.length} servers: expected ${MOST_SERVERS} at most`)
      const facts = await Promise.all([hostFacts(options, context), networkFacts(options, context)])
      context.output.answer(`${JSON.stringify({ facts: facts.flat() } satisfies MachineFacts)}\n`)
    })
}

async function hostFacts({ node, folder = [] }: MachineOptions, { signal }: CommandContext): Promise<readonly Fact[]> {
  if (node === undefined) return []
  const { probeHost } = await import('../../diagnose/host-probe.ts')
  const { nodePages } = await import('../../diagnose/cluster/node-pages.ts')
  const found = [probeHost({ node, nodes: () => [], folders: folder }, signal), nodePages(signal)]
  return (await Promise.all(found)).flat()
}

async function networkFacts({ broker, dns = [] }: MachineOptions, context: CommandContext): Promise<readonly Fact[]> {
  if (!broker && dns.length === 0) return []
  const { lookFromPod } = await import('../../diagnose/cluster/look-from-pod.ts')
  return lookFromPod({ broker, servers: dns }, context)
}
