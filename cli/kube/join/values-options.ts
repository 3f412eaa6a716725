/** Flags of what is installed. */
import type { Command } from 'commander'
import { formatImageName, parseImageName } from '../../../install/image-name.ts'
import { DEFAULT_VALUES, type InstallValues, STATUS_PLACES, type StatusPlace } from '../../../install/values.ts'
import { isDnsSubdomain } from '../../../model/ids.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { choiceOption, collect, parsed, quoted } from '../../context.ts'
import type { MarkOptions } from '../marks/mark-options.ts'

/** Absent: what is installed already keeps its own; else the default. */
export interface ImageOptions {
  readonly image?: string
  readonly imagePullPolicy?: string
  readonly imagePullSecret?: readonly string[]
}

const PULL_POLICIES = ['IfNotPresent', 'Always', 'Never'] as const

export function addImageOptions(command: Command): Command {
  const standard = formatImageName(DEFAULT_VALUES.image)
  return command
    .option('--image <image>', `image of all parts (default: as installed, else "${standard}")`, parsed(parseImage))
    .addOption(
      choiceOption(
        '--image-pull-policy <policy>',
        `when nodes fetch it (default: as installed, else "${DEFAULT_VALUES.image.pullPolicy}")`,
        PULL_POLICIES,
      ),
    )
    .option(
      '--image-pull-secret <name>',
      'a Secret with access to its registry, in the namespace of the parts; may be given several times',
      collect(parseSecretName),
    )
}

export function withImage(values: InstallValues, options: ImageOptions): InstallValues {
  const { image, imagePullPolicy = values.image.pullPolicy, imagePullSecret } = options
  const named = imageValues(values, image ?? formatImageName(values.image), imagePullPolicy)
  return imagePullSecret === undefined
    ? named
    : { ...named, imagePullSecrets: imagePullSecret.map((name) => ({ name })) }
}

export function imageValues(values: InstallValues, image: string, pullPolicy: string): InstallValues {
  return { ...values, image: { ...parseImageName(image), pullPolicy } }
}

function parseSecretName(text: string): string {
  if (!isDnsSubdomain(text)) throw new UserError(`--image-pull-secret ${quoted(text)}: expected the name of a Secret`)
  return text
}

/** Absent: as it is. */
export interface StatusOptions {
  readonly statusListen?: StatusPlace
}

/** What of the values was asked for: the rest stays as it is installed. */
export type AskedOptions = ImageOptions & StatusOptions & MarkOptions

export function addStatusOptions(command: Command): Command {
  const what =
    "with --context: where metrics can be scraped: node is each node's InternalIP, and the pods of agent and dns"
  return command.addOption(choiceOption('--status-listen <place>', what, STATUS_PLACES))
}

export function withStatus(values: InstallValues, { statusListen }: StatusOptions): InstallValues {
  if (statusListen === undefined) return values
  const { gateway, routeagent } = values
  const metrics = { ...values.metrics, open: statusListen === 'node' }
  return { ...values, metrics, gateway: { ...gateway, statusListen }, routeagent: { ...routeagent, statusListen } }
}

/** With a tag: what is installed must be known. */
export function parseImage(text: string): string {
  if (!/^[a-z0-9][a-z0-9._/:-]*(:[\w][\w.-]{0,127}|@sha256:[0-9a-f]{64})$/.test(text)) {
    throw new UserError(`--image ${quoted(text)}: expected a name with a tag, such as registry.example.org/sealane:1.0`)
  }
  return text
}
