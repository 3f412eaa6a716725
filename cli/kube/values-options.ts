/** Flags of what is installed. */
import type { Command } from 'commander'
import { DEFAULT_VALUES, type InstallValues, STATUS_PLACES, type StatusPlace } from '../../install/values.ts'
import { UserError } from '../../runtime/user-error.ts'
import { choiceOption, parsed, quoted } from '../context.ts'

export interface ImageOptions {
  readonly image?: string
  readonly imagePullPolicy: string
}

const PULL_POLICIES = ['IfNotPresent', 'Always', 'Never'] as const

export function addImageOptions(command: Command): Command {
  const { repository, tag, pullPolicy } = DEFAULT_VALUES.image
  return command
    .option('--image <image>', `image of all parts (default: "${repository}:${tag}")`, parsed(parseImage))
    .addOption(choiceOption('--image-pull-policy <policy>', 'when nodes fetch it', PULL_POLICIES, pullPolicy))
}

export function withImage(values: InstallValues, { image, imagePullPolicy }: ImageOptions): InstallValues {
  const { repository, tag } = values.image
  return imageValues(values, image ?? `${repository}:${tag}`, imagePullPolicy)
}

/** `image` has a tag. */
export function imageValues(values: InstallValues, image: string, pullPolicy: string): InstallValues {
  const at = image.lastIndexOf(':')
  return { ...values, image: { repository: image.slice(0, at), tag: image.slice(at + 1), pullPolicy } }
}

/** Absent: as it is. */
export interface StatusOptions {
  readonly statusListen?: StatusPlace
}

export function addStatusOptions(command: Command): Command {
  const what =
    "with --context: where metrics of gateways and routeagents can be scraped: node is each node's InternalIP"
  return command.addOption(choiceOption('--status-listen <place>', what, STATUS_PLACES))
}

export function withStatus(values: InstallValues, { statusListen }: StatusOptions): InstallValues {
  if (statusListen === undefined) return values
  const { gateway, routeagent } = values
  return { ...values, gateway: { ...gateway, statusListen }, routeagent: { ...routeagent, statusListen } }
}

/** With a tag: what is installed must be known. */
function parseImage(text: string): string {
  if (!/^[a-z0-9][a-z0-9._/:-]*:[\w][\w.-]{0,127}$/.test(text)) {
    throw new UserError(`--image ${quoted(text)}: expected a name with a tag, such as registry.example.org/sealane:1.0`)
  }
  return text
}
