/** The tree of commands. Each lives in commands/, with its help and one example. */
import { Command } from 'commander'
import { addBrokerCommand } from './commands/broker.ts'
import { addClusterCommand } from './commands/cluster.ts'
import { addDiagnoseCommand, addGatherCommand, addMachineCommand } from './commands/diagnose.ts'
import { addExportCommands, addJoinCommand, addLeaveCommand, addUninstallCommand } from './commands/member.ts'
import { addGatewayCommand } from './commands/gateway.ts'
import { addMembersCommand, addStatusCommand } from './commands/status.ts'
import { addShowCommand } from './commands/show.ts'
import { addTokenCommand } from './commands/token.ts'
import { addUpCommand } from './commands/up.ts'
import { addVersionCommand } from './commands/version.ts'
import { sealaneVersion } from '../runtime/version.ts'
import { type CommandContext, parseWith, throwingUsageErrors } from './context/command-context.ts'
import { processOutput } from './context/output.ts'

/** Runs one command. Throws what it throws, and UserError for words that mean nothing. */
export function runCommandLine(words: readonly string[], signal: AbortSignal): Promise<void> {
  return parseWith(buildProgram(signal), words)
}

export function buildProgram(
  signal: AbortSignal,
  context: CommandContext = { signal, output: processOutput },
): Command {
  const program = throwingUsageErrors(new Command('sealane'))
    .description('Joins clusters and plain Linux sites into one network and one set of services.')
    .version(sealaneVersion(), '--version')
    .configureOutput({
      writeOut: (text) => context.output.answer(text),
      // Errors are printed once, by the frame of the process.
      writeErr: () => undefined,
    })
    .helpCommand(false)
  addBrokerCommand(program, context)
  addTokenCommand(program, context)
  addClusterCommand(program, context)
  addJoinCommand(program, context)
  addLeaveCommand(program, context)
  addUninstallCommand(program, context)
  addGatewayCommand(program, context)
  addUpCommand(program, context)
  addExportCommands(program, context)
  addStatusCommand(program, context)
  addDiagnoseCommand(program, context)
  addGatherCommand(program, context)
  addMembersCommand(program, context)
  addMachineCommand(program, context)
  addShowCommand(program, context)
  addVersionCommand(program, context)
  return program
}
