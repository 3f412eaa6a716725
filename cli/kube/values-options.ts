/** Flags of what is installed. */
import type { Command } from 'commander'
import { DEFAULT_VALUES, type InstallValues } from '../../install/values.ts'
import { UserError } from '../../runtime/user-error.ts'
import { choiceOption, parsed, quoted } from '../context.ts'

/** Absent: what is installed already keeps its own; else the default. */
export interface ImageOptions {
  readonly image?: string
  readonly imagePullPolicy?: string
  readonly imagePullSecret?: readonly string[]
}

const PULL_POLICIES = ['IfNotPresent', 'Always', 'Never'] as const

export function addImageOptions(command: Command): Command {
  const { repository, tag, pullPolicy } = DEFAULT_VALUES.image
  const standard = `${repository}:${tag}`
  return command
    .option('--image <image>', `image of all parts (default: as installed, else "${standard}")`, parsed(parseImage))
    .addOption(
      choiceOption(
        '--image-pull-policy <policy>',
        `when nodes fetch it (default: as installed, else "${pullPolicy}")`,
        PULL_POLICIES,
      ),
    )
}

export function withImage(values: InstallValues, options: ImageOptions): InstallValues {
  const { image, imagePullPolicy = values.image.pullPolicy } = options
  const { repository, tag } = values.image
  return imageValues(values, image ?? `${repository}:${tag}`, imagePullPolicy)
}

/** `image` has a tag. */
export function imageValues(values: InstallValues, image: string, pullPolicy: string): InstallValues {
  const at = image.lastIndexOf(':')
  return { ...values, image: { repository: image.slice(0, at), tag: image.slice(at + 1), pullPolicy } }
}

/** With a tag: what is installed must be known. */
function parseImage(text: string): string {
  if (!/^[a-z0-9][a-z0-9._/:-]*:[\w][\w.-]{0,127}$/.test(text)) {
    throw new UserError(`--image ${quoted(text)}: expected a name with a tag, such as registry.example.org/sealane:1.0`)
  }
  return text
}
