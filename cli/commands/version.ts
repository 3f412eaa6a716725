/** `sealane version` */
import type { Command } from 'commander'
import { type CommandContext, outputOption, sealaneVersion, subcommand } from '../context.ts'
import { type OutputFormat, printOne } from '../output.ts'

export function addVersionCommand(program: Command, { output }: CommandContext): void {
  subcommand(program, 'version', 'Prints the versions of Sealane and of its Node.', 'sealane version -o json')
    .addOption(outputOption())
    .action(async ({ output: format }: { output: OutputFormat }) => {
      const version = { sealane: sealaneVersion(), node: process.versions.node }
      await printOne(output, format, version, `sealane ${version.sealane} (node ${version.node})\n`)
    })
}
