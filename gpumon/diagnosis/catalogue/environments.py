"""Errors of environments for reinforcement learning: Gymnasium and Stable-Baselines3.

The wordings are from the sources of Gymnasium 1.0 and Stable-Baselines3 2.7, and from reports.
"""

from typing import Final

from gpumon.diagnosis.catalogue.reinforcement import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_CUSTOM: Final = "https://stable-baselines3.readthedocs.io/en/master/guide/custom_env.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="rl-environment",
        section=SECTION,
        title="Environment has the interface of another version",
        summary="Since Gym 0.26 and in Gymnasium, step returns five values and reset two; this environment, or the"
        " program that calls it, has the other form.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Expected `Env.step` to return",
                r"Expected `Env\.step` to return a four or five element tuple, actual number of elements"
                r" returned: (?P<count>\d{1,4})",
            ),
            Pattern("not a Gymnasium ", r"The environment is of type (?P<type>[^\n]{1,120}), not a Gymnasium env"),
            Pattern("Missing shimmy installation", r"Missing shimmy installation\. You provided an OpenAI Gym"),
            Pattern(
                "returned by `env.reset()` was not a tuple",
                r"The result returned by `env\.reset\(\)` was not a tuple",
            ),
        ),
        causes=(
            "The environment is written for gym before 0.26, and the installed gym or gymnasium is newer.",
            "The program is written for gymnasium, and the environment comes from gym.",
        ),
        fixes=(
            Fix(
                "Return the values of the newer form from the environment.",
                """\
class Environment(gymnasium.Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return observation, {}

    def step(self, action):
        return observation, reward, terminated, truncated, {}""",
            ),
            Fix(
                "If the environment is for the old gym, convert it.",
                "pip install 'shimmy>=2.0' gymnasium",
                first_for=("OpenAI Gym",),
            ),
            Fix("If the entire program is for the old gym, install that.", 'pip install "gym<0.26"'),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://gymnasium.farama.org/introduction/migration_guide/", _CUSTOM),
        said_by="gym 0.26, Gymnasium 0.28-1.2, Stable-Baselines3 2.0-2.7",
    ),
    KnownError(
        id="rl-spaces",
        section=SECTION,
        title="Environment does not fit the policy",
        summary="The observations or actions of the environment have another shape or type than the policy expects.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Unexpected observation shape",
                r"Unexpected observation shape (?P<given>\([\d, ]{0,60}\)) for (?P<space>\w{1,20}) environment, please"
                r" use (?P<expected>\([\d, ]{0,60}\))",
            ),
            Pattern(
                " spaces do not match: ",
                r"(?P<space>Observation|Action) spaces do not match: (?P<expected>\w{1,20}[^\n]{0,120}) !=",
            ),
            Pattern(
                "The algorithm only supports ",
                r"The algorithm only supports (?P<expected>[^\n]{1,200}) as action spaces but",
            ),
            Pattern("You must use `MultiInputPolicy`", r"You must use `MultiInputPolicy` when working with dict"),
            Pattern(
                "The number of environments to be set is different",
                r"The number of environments to be set is different from the number of environments in the model: "
                r"\((?P<given>\d{1,9}) != (?P<expected>\d{1,9})\)",
            ),
            Pattern(
                "KeyError: 'observation.",
                r"KeyError: '(?P<expected>observation\.(?:images?|state|environment)[\w.]{0,60})'",
            ),
            literal("There seems to be a mix of vectorized and non-vectorized observations"),
        ),
        causes=(
            "The saved model was trained in another version of the environment.",
            "The environment returns observations that are not in its own observation_space.",
            "A wrapper of training, such as one that stacks or transposes frames, is missing when the model is used.",
            "The algorithm has no form for these actions: DQN needs Discrete, SAC, TD3 and DDPG need Box.",
        ),
        fixes=(
            Fix(
                "Compare what the environment returns with what it declares.",
                """\
from stable_baselines3.common.env_checker import check_env

check_env(env)
print(env.reset()[0].shape, env.observation_space)""",
            ),
            Fix(
                "Load the model together with the environment, wrapped as in training; if the spaces have changed,"
                " train again.",
                "model = PPO.load(path, env=env)",
                first_for=("do not match", "number of environments"),
            ),
            Fix(
                "Use an algorithm for these actions, such as PPO, which has all forms.",
                'model = PPO("MlpPolicy", env)',
                first_for=("only supports",),
            ),
            Fix(
                "In LeRobot, map the names of the data set to those that the policy was made for.",
                'python -m lerobot.scripts.lerobot_train --rename_map=\'{"observation.images.top":'
                ' "observation.images.camera1"}\'',
                first_for=("'observation.",),
            ),
            Fix("Use the policy for dictionaries.", 'model = PPO("MultiInputPolicy", env)', first_for=("MultiInput",)),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_CUSTOM,),
        said_by="Stable-Baselines3 1.0-2.7",
    ),
    KnownError(
        id="rl-environment-missing",
        section=SECTION,
        title="Environment is not installed",
        summary="Gymnasium does not know the name, or the package with the game or the physics of the environment is"
        " missing.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("NamespaceNotFound", r"error\.NamespaceNotFound: Namespace (?P<name>\S{1,40}) not found"),
            Pattern(
                "error.NameNotFound",
                r"error\.NameNotFound: Environment [`']?(?P<name>[\w./-]{1,60})[`']? doesn't exist",
            ),
            Pattern(
                "error.DeprecatedEnv",
                r"error\.DeprecatedEnv: Environment version (?P<version>\S{1,10}) for"
                r" [^\n]{0,20}?`(?P<name>[\w./-]{1,60})`",
            ),
            Pattern(
                "error.DependencyNotInstalled",
                r"error\.DependencyNotInstalled: (?P<reason>[^\n]{1,160})",
            ),
        ),
        causes=(
            "Extras such as Atari, Box2D and MuJoCo are separate packages.",
            "The package that registers the environment is installed, and the program does not import it.",
            "The version at the end of the name has been replaced by a newer one.",
        ),
        fixes=(
            Fix(
                "Install Gymnasium with the extra of the environment.",
                "pip install swig && pip install 'gymnasium[atari,box2d,mujoco]'",
            ),
            Fix(
                "Register the environments of a package before they are made.",
                "import ale_py\nimport gymnasium\n\ngymnasium.register_envs(ale_py)",
                first_for=("NamespaceNotFound", "NameNotFound"),
            ),
            Fix(
                "List the names that are known, and take the newest version.",
                "import gymnasium\n\ngymnasium.pprint_registry()",
                first_for=("DeprecatedEnv",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://gymnasium.farama.org/api/registry/",),
        said_by="gym 0.26, Gymnasium 0.28-1.2",
    ),
    KnownError(
        id="rsl-rl-version",
        section=SECTION,
        title="Training library rsl_rl has another version than the program",
        summary="The configuration of the program lacks a part that the installed rsl_rl reads, or has it in another"
        " form.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("KeyError: 'rnd_cfg'", r"KeyError: '(?P<key>rnd_cfg)'"),
            Pattern(
                "'obs_groups' must contain the",
                r"dictionary 'obs_groups' must contain the '(?P<key>\w{1,20})' key\.",
            ),
        ),
        causes=(
            "The repository was written for rsl_rl 1 or 2, and pip installed a newer one.",
            "Isaac Lab is older than rsl-rl-lib, or the reverse.",
        ),
        fixes=(
            Fix(
                "Install the last version that fits: below 3 for programs without obs_groups.",
                'python -m pip install "rsl-rl-lib<3"',
            ),
            Fix(
                "The program is older than rsl_rl 2.1: install the version for its release of Isaac Lab.",
                'python -m pip install "rsl-rl-lib==2.0.1"',
                first_for=("rnd_cfg",),
                hidden_otherwise=True,
            ),
            Fix("Show which copy runs.", "python -c 'import rsl_rl; print(rsl_rl.__file__)'; pip show rsl-rl-lib"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/leggedrobotics/rsl_rl/releases",
            "https://github.com/Hellod035/LeggedLab/issues/50",
        ),
        said_by="rsl_rl 2.1-3.1",
    ),
    KnownError(
        id="simulator-import",
        section=SECTION,
        title="Modules of the simulator are imported in the wrong order",
        summary="Isaac Sim has its modules only after it was started, and Isaac Gym must be imported before PyTorch.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("PyTorch was imported before isaacgym", r"PyTorch was imported before isaacgym modules"),
            Pattern(
                "Isaac Sim import statements must take place",
                r"Omniverse/Isaac Sim import statements must take place after",
            ),
            Pattern(
                "No module named '",
                r"ModuleNotFoundError: No module named '(?P<module>pxr|carb|omni\.(?:isaac|kit|usd|physx?|timeline)"
                r"[\w.]{0,60}|isaacsim\.[\w.]{1,60})'",
            ),
        ),
        causes=(
            "A module of the program imports pxr, omni or isaacsim before SimulationApp or AppLauncher exists.",
            "The program runs with another Python than that of Isaac Sim.",
            "The version of Isaac Sim has other modules, whose extension is not enabled.",
        ),
        fixes=(
            Fix(
                "Start the simulator first, then import the rest.",
                """\
from isaaclab.app import AppLauncher

simulation = AppLauncher(headless=True).app
from pxr import Usd""",
            ),
            Fix("Import isaacgym before torch.", "import isaacgym\nimport torch", first_for=("isaacgym modules",)),
            Fix("Run the program with the Python of Isaac Lab.", "bash isaaclab.sh -p train.py --headless"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://isaac-sim.github.io/IsaacLab/main/source/tutorials/00_sim/create_empty.html",),
        said_by="Isaac Gym Preview 4, Isaac Sim 2023.1-5.1, Isaac Lab 1.0-2.3",
    ),
)
