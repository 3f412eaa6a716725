/** The tree of commands. Each command lives in commands/, with its help and one example. */
import { Command } from 'commander'
import {
  addAccessCommand,
  addBenchmarkCommand,
  addBrokerCommand,
  addClusterCommand,
  addConsoleCommand,
  addDiagnoseCommand,
  addExplainCommand,
  addExportCommands,
  addFlowsCommand,
  addGatewayCommand,
  addGatherCommand,
  addJoinCommand,
  addLeaveCommand,
  addMachineCommand,
  addMembersCommand,
  addProbeCommand,
  addRelayCommand,
  addServiceCommand,
  addShowCommand,
  addSiteCommand,
  addSiteNodeCommands,
  addStatusCommand,
  addTokenCommand,
  addTopCommand,
  addTopologyCommand,
  addUninstallCommand,
  addUpCommand,
  addVerifyCommand,
  addVersionCommand,
} from './commands/commands.ts'
import { sealaneVersion } from '../runtime/runtime.ts'
import { type CommandContext, parseWith, processOutput, throwingUsageErrors } from './context/context.ts'

/** Runs one command. Throws what the command throws, and UserError for an unknown command or option. */
export function runCommandLine(words: readonly string[], signal: AbortSignal): Promise<void> {
  return parseWith(buildProgram(signal), words)
}

export function buildProgram(
  signal: AbortSignal,
  context: CommandContext = { signal, output: processOutput },
): Command {
  const program = throwingUsageErrors(new Command('sealane'))
    .description('Joins Kubernetes clusters and plain Linux sites into one network and one set of services.')
    .version(sealaneVersion(), '--version')
    .configureOutput({
      writeOut: (text) => context.output.answer(text),
      // The frame of the process prints each error once.
      writeErr: () => undefined,
    })
    .helpCommand(false)
    // `console` and `console serve` have options of the same names: each word belongs to the command before it.
    .enablePositionalOptions()
  addBrokerCommand(program, context)
  addRelayCommand(program, context)
  addTokenCommand(program, context)
  addClusterCommand(program, context)
  addJoinCommand(program, context)
  addLeaveCommand(program, context)
  addUninstallCommand(program, context)
  addGatewayCommand(program, context)
  addSiteCommand(program, context)
  addUpCommand(program, context)
  addSiteNodeCommands(program, context)
  addExportCommands(program, context)
  addServiceCommand(program, context)
  addStatusCommand(program, context)
  addConsoleCommand(program, context)
  addDiagnoseCommand(program, context)
  addExplainCommand(program, context)
  addVerifyCommand(program, context)
  addBenchmarkCommand(program, context)
  addProbeCommand(program, context)
  addGatherCommand(program, context)
  addMembersCommand(program, context)
  addMachineCommand(program, context)
  addShowCommand(program, context)
  addAccessCommand(program, context)
  addTopologyCommand(program, context)
  addTopCommand(program, context)
  addFlowsCommand(program, context)
  addVersionCommand(program, context)
  return program
}
